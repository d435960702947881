package cpu

import (
	"fmt"

	"gpt2scope/gpt2"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/memory"
)

// fits returns an error if sessions need more memory than is left: the system would end the process without a word.
// size is that of the weights which are not packed yet. Caches of sessions that are there may not have been touched yet,
// so that they count too.
func (b *Backend) fits(m *gpt2.Model, o gpt2.Options, size, sessions int) error {
	cache := func(d dtype) int64 {
		kv := cache{B: o.Batch, NH: m.Config.Heads, HS: m.Config.HeadSize(), dtype: d.ofTables()}
		return int64(4*kv.words(roundUp(o.Context))) * int64(len(o.Layers)) * int64(sessions)
	}
	prompt := gpt2.Pass{Batch: o.Batch, Tokens: max(1, o.Prompt), Logits: gpt2.LogitsLast}
	if o.Chunk > 0 {
		prompt.Tokens = min(o.Chunk, prompt.Tokens)
	}
	kv, activations := cache(b.dtype), activationBytes(gpt2.Forward(m.Config, o.Layers, prompt))
	need := int64(size) + kv + activations
	if need <= muchMemory {
		return nil
	}
	left, by := memory.Left()
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
	return fmt.Errorf("model %s needs %s of memory (weights as %s %s, KV cache of %d tokens %s, activations of %s "+
		"%s), and %s are left%s: %s", m.Name, humanize.Size(need), weightTypes[b.dtype], humanize.Size(int64(size)),
		o.Context*o.Batch*sessions, humanize.Size(kv), humanize.Count(prompt.Tokens, "token", "tokens"),
		humanize.Size(activations), humanize.Size(left), by, advice)
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
