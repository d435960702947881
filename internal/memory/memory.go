// Package memory knows how much memory a process may still take.
package memory

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Left returns how many bytes can be allocated before the system refuses them or ends the process, -1 if that is not
// known, and by which limit as words to follow.
func Left() (bytes int64, by string) { return left("/proc", "/sys") }

// left is Left with the places of /proc and /sys.
func left(proc, sys string) (left int64, by string) {
	left = -1
	consider := func(of string, limit int64, used func() int64) {
		if limit < 0 {
			return // the files that say what is used take the system longest to write
		}
		taken := used()
		if n := max(0, limit-taken); taken >= 0 && (left < 0 || n < left) {
			left, by = n, of
		}
	}
	meminfo := filepath.Join(proc, "meminfo")
	if n := fileNumber(meminfo, "MemAvailable:"); n >= 0 {
		left = n + max(0, fileNumber(meminfo, "SwapFree:"))
	}
	limits, status := filepath.Join(proc, "self/limits"), filepath.Join(proc, "self/status")
	of := func(key string) func() int64 { return func() int64 { return fileNumber(status, key) } }
	consider(" by ulimit -v", fileNumber(limits, "Max address space"), of("VmSize:"))
	consider(" by ulimit -d", fileNumber(limits, "Max data size"), of("VmData:"))
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
			consider(" in the control group", fileNumber(filepath.Join(dir, limit), ""), func() int64 {
				stat := filepath.Join(dir, "memory.stat")
				cached := max(0, fileNumber(stat, total+"inactive_file")) + max(0, fileNumber(stat, total+"active_file"))
				return fileNumber(filepath.Join(dir, usage), "") - cached
			})
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
