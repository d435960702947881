package cpu

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Cache is a level of the processor's data caches.
type Cache struct {
	Level int
	Bytes int64 // of all caches of the level that so many threads can fill
}

// caches lists the levels, nearest first, as sysfs (root is /sys) describes them for these processors. If each core has
// a cache of a level for itself, the size is that of as many caches as there are threads. The list is empty if the
// system does not report them.
func caches(root string, cpus []int, threads int) []Cache {
	size, instances := map[int]int64{}, map[int]map[string]bool{}
	for _, cpu := range cpus {
		folders, _ := filepath.Glob(filepath.Join(root, fmt.Sprintf("devices/system/cpu/cpu%d/cache/index*", cpu)))
		for _, folder := range folders {
			read := func(name string) string {
				data, _ := os.ReadFile(filepath.Join(folder, name))
				return string(bytes.TrimSpace(data))
			}
			level, err := strconv.Atoi(read("level"))
			n := parseSize(read("size"))
			if err != nil || level < 1 || level > 9 || n <= 0 || read("type") == "Instruction" {
				continue
			}
			if instances[level] == nil {
				instances[level] = map[string]bool{}
			}
			instances[level][read("shared_cpu_list")] = true
			size[level] = max(size[level], n)
		}
	}
	var out []Cache
	for level, n := range size {
		out = append(out, Cache{level, n * int64(min(len(instances[level]), threads))})
	}
	slices.SortFunc(out, func(a, b Cache) int { return a.Level - b.Level })
	return out
}

// parseSize reads "2048K" as bytes, 0 if it is no size.
func parseSize(s string) int64 {
	unit := int64(1)
	for suffix, bytes := range map[string]int64{"K": 1 << 10, "M": 1 << 20, "G": 1 << 30} {
		if digits, ok := strings.CutSuffix(s, suffix); ok {
			s, unit = digits, bytes
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > 1<<40/unit {
		return 0
	}
	return n * unit
}

// availableMemory returns how many bytes can be allocated without harm, as the system tells: free memory, or the
// control group's limit if that is less. It is 0 if neither is known.
func availableMemory(proc, sys string) int64 {
	least := int64(0)
	consider := func(n int64, err error) {
		if err == nil && n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	data, _ := os.ReadFile(filepath.Join(proc, "meminfo"))
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 50)
			consider(n<<10, err)
		}
	}
	if data, err := os.ReadFile(filepath.Join(sys, "fs/cgroup/memory.max")); err == nil {
		consider(strconv.ParseInt(string(bytes.TrimSpace(data)), 10, 62))
	}
	return least
}
