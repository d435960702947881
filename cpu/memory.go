package cpu

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"gpt2scope/gpt2"
	"gpt2scope/internal/humanize"
)

// fits returns an error if sessions need more memory than is left: the system would end the process without a word.
// size is that of the weights which are not packed yet. Caches of sessions that are there may not have been touched yet,
// so that they count too.
func (b *Backend) fits(m *gpt2.Model, o gpt2.Options, size, sessions int) error {
	cache := func(d dtype) int64 {
		kv := cache{S: roundUp(o.Context), NH: m.Config.Heads, HS: m.Config.HeadSize(), dtype: d.ofTables()}
		return int64(4*(kv.keyWords()+kv.valueWords())) * int64(o.Batch) * int64(len(o.Layers)) * int64(sessions)
	}
	left, by := memoryLeft("/proc", "/sys")
	prompt := gpt2.Pass{Batch: o.Batch, Tokens: max(1, o.Prompt), Logits: gpt2.LogitsLast}
	if o.Chunk > 0 {
		prompt.Tokens = min(o.Chunk, prompt.Tokens)
	}
	kv, activations := cache(b.dtype), activationBytes(gpt2.Forward(m.Config, o.Layers, prompt))
	need := int64(size) + kv + activations
	if left < 0 || need <= left {
		return nil
	}
	advice := "--layers N runs the first layers alone"
	if need-activations <= left {
		advice = "--chunk N evaluates fewer tokens of a prompt at a time"
	}
	for _, d := range []dtype{q8Type, bfloat16Type} { // the larger one that fits
		_, size := missing(m.Config, nil, o.Layers, d)
		if n := int64(size) + cache(d) + activations; d != b.dtype && n <= left {
			advice = fmt.Sprintf("--dtype %s takes %s", weightTypes[d], humanize.Size(n))
		}
	}
	return fmt.Errorf("model %s needs %s of memory (weights as %s %s, KV cache of %d tokens %s, activations of %d tokens "+
		"%s), and %s are left%s: %s", m.Name, humanize.Size(need), weightTypes[b.dtype], humanize.Size(int64(size)),
		o.Context*o.Batch*sessions, humanize.Size(kv), prompt.Tokens, humanize.Size(activations), humanize.Size(left), by, advice)
}

// activationBytes returns the size of the buffers of a pass.
func activationBytes(p *gpt2.Plan) (n int64) {
	for b, shape := range p.Buffers {
		if gpt2.Buffer(b) != gpt2.BufTokens {
			n += 4 * int64(p.Pass.Batch) * int64(shape.Rows) * int64(shape.Width)
		}
	}
	return n
}

// memoryLeft returns how many bytes can be allocated before the system refuses them or ends the process, -1 if that is
// not known, and by which limit as words to follow. proc and sys are /proc and /sys.
func memoryLeft(proc, sys string) (left int64, by string) {
	left = -1
	consider := func(of string, limit, used int64) {
		if n := max(0, limit-used); limit >= 0 && used >= 0 && (left < 0 || n < left) {
			left, by = n, of
		}
	}
	meminfo := filepath.Join(proc, "meminfo")
	if n := fileNumber(meminfo, "MemAvailable:"); n >= 0 {
		consider("", n+max(0, fileNumber(meminfo, "SwapFree:")), 0)
	}
	limits, status := filepath.Join(proc, "self/limits"), filepath.Join(proc, "self/status")
	consider(" by ulimit -v", fileNumber(limits, "Max address space"), fileNumber(status, "VmSize:"))
	consider(" by ulimit -d", fileNumber(limits, "Max data size"), fileNumber(status, "VmData:"))
	groups, _ := os.ReadFile(filepath.Join(proc, "self/cgroup"))
	for line := range strings.Lines(string(groups)) { // number:controllers:path; version 2 has no controllers
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) < 3 || parts[1] != "" && parts[1] != "memory" {
			continue
		}
		base, limit, usage, total := filepath.Join(sys, "fs/cgroup"), "memory.max", "memory.current", ""
		if parts[1] != "" {
			base, limit, usage, total = filepath.Join(base, "memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"
		}
		for path := filepath.Clean("/" + parts[2]); ; path = filepath.Dir(path) {
			dir := filepath.Join(base, path)
			stat := filepath.Join(dir, "memory.stat")
			cached := max(0, fileNumber(stat, total+"inactive_file")) + max(0, fileNumber(stat, total+"active_file"))
			used := fileNumber(filepath.Join(dir, usage), "") - cached
			consider(" in the control group", fileNumber(filepath.Join(dir, limit), ""), used)
			if path == "/" {
				break
			}
		}
	}
	return left, by
}

// fileNumber returns the number after a key in a line of a file, of kB in bytes; -1 if there is none.
func fileNumber(path, key string) int64 {
	data, _ := os.ReadFile(path)
	for line := range strings.Lines(string(data)) {
		rest, ok := strings.CutPrefix(line, key)
		words := strings.Fields(rest)
		if !ok || len(words) == 0 {
			continue
		}
		n, err := strconv.ParseInt(words[0], 10, 50) // larger ones stand for no limit
		if err != nil || n < 0 {
			return -1
		}
		if len(words) > 1 && words[1] == "kB" {
			n <<= 10
		}
		return n
	}
	return -1
}
