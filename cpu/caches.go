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
