package memory

import (
	"cmp"
	"os"
	"path/filepath"
	"testing"

	"gpt2scope/internal/require"
)

func TestLeft(t *testing.T) {
	meminfo := "MemTotal: 9 kB\nMemAvailable:   2048 kB\nSwapFree:  1024 kB\n"
	const mib = 1 << 20
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
		by    string
	}{
		"nothing":  {nil, -1, ""},
		"junk":     {map[string]string{"meminfo": "MemAvailable:   junk kB\n", "fs/cgroup/memory.max": "-5\n"}, -1, ""},
		"machine":  {map[string]string{"meminfo": meminfo}, 3 * mib, ""},
		"no limit": {map[string]string{"meminfo": meminfo, "self/cgroup": "0::/\n", "fs/cgroup/memory.max": "max\n"}, 3 * mib, ""},
		"addresses": {map[string]string{"meminfo": meminfo, "self/limits": "Max address space   5242880   unlimited   bytes\n",
			"self/status": "VmSize:\t4096 kB\n"}, 1 * mib, " by ulimit -v"},
		"group of a group": {map[string]string{"meminfo": meminfo, "self/cgroup": "0::/a/b\n", "fs/cgroup/a/memory.max": "4194304\n",
			"fs/cgroup/a/memory.current": "4194304\n", "fs/cgroup/a/memory.stat": "inactive_file 1048576\nactive_file 1048576\n",
			"fs/cgroup/a/b/memory.max": "max\n", "fs/cgroup/a/b/memory.current": "7"}, 2 * mib, " in the control group"},
		"version 1": {map[string]string{"meminfo": meminfo, "self/cgroup": "9:name=systemd:/\n4:memory:/a\n0::/\n",
			"fs/cgroup/memory/a/memory.limit_in_bytes": "1048576", "fs/cgroup/memory/a/memory.usage_in_bytes": "2097152",
			"fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712"}, 0, " in the control group"},
	} {
		root := t.TempDir()
		for file, text := range c.files {
			path := filepath.Join(root, file)
			require.NoError(t, cmp.Or(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, []byte(text), 0o666)))
		}
		if left, by := left(root, root); left != c.want || by != c.by {
			t.Errorf("%s: %d%s, expected %d%s", name, left, by, c.want, c.by)
		}
	}
}
