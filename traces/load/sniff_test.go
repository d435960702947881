package load

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpt2scope/traces/internal/fixtures"
)

// TestForeign: the content of a file says what it is, whatever its name is, and the error says
// what to give instead.
func TestForeign(t *testing.T) {
	random := make([]byte, 9000)
	r := rand.New(rand.NewPCG(3, 4))
	for i := range random {
		random[i] = byte(r.Uint32())
	}
	const (
		report  = "NVIDIA Tegra Profiler Report 1.\n\x0bLocal (CLI)"
		details = "\"ID\",\"Process ID\",\"Process Name\",\"Host Name\",\"Kernel Name\",\"Context\",\"Stream\",\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n\"0\",\"7\",\"infer\"\n"
	)
	for name, c := range map[string]struct {
		content string
		facts   []string
		not     string
	}{
		"a.nsys-rep":   {report, []string{"is a report of Nsight Systems", "nsys export --type sqlite"}, "not a trace"},
		"a.json":       {report, []string{"is a report of Nsight Systems", "nsys export --type sqlite"}, "JSON"},
		"b.nsys-rep":   {string(random), []string{"is not a trace", "not that of a report of Nsight Systems", "nsys export --type sqlite"}, "is a report"},
		"b.ncu-rep":    {string(random), []string{"is not a trace", "not that of a report of Nsight Compute", "ncu --csv --page details"}, "is a report"},
		"random":       {string(random), []string{"is not a trace", "neither JSON"}, "report"},
		"c.ncu-rep":    {"NVR\x00\x02\x00\x00\x00", []string{"is a report of Nsight Compute", "ncu --csv --page details --import"}, "JSON"},
		"d.csv":        {details, []string{"is output of Nsight Compute", "ncu --csv --page details", "nsys export --type sqlite"}, "JSON"},
		"e.txt":        {"==PROF== Connected to process 7 (/bin/infer)\n==PROF== Disconnected\n" + details, []string{"is output of Nsight Compute"}, "JSON"},
		"messages.csv": {"some lines of the program\n" + details, []string{"is output of Nsight Compute"}, "JSON"},
		"text":         {"hello", []string{"is not a trace", "neither JSON"}, "byte 0"},
	} {
		path := filepath.Join(t.TempDir(), name)
		fixtures.Check(t, os.WriteFile(path, []byte(c.content), 0o666))
		_, err := Load(path)
		if err == nil {
			t.Errorf("%s is read", name)
			continue
		}
		fixtures.Says(t, name, err.Error(), append(c.facts, path)...)
		if strings.Contains(strings.ReplaceAll(err.Error(), path, ""), c.not) {
			t.Errorf("%s: error %q says %q", name, err, c.not)
		}
	}

	_, err := (Source{Path: "standard input", Stream: strings.NewReader(report)}).Load()
	if err == nil || !strings.HasPrefix(err.Error(), "standard input is a report") || !strings.Contains(err.Error(), "nsys export --type sqlite FILE,") {
		t.Errorf("a report as a stream: error %v", err)
	}

	// A table of nsys stats, and recordings whatever they are called.
	for _, table := range []string{"eager.cuda_gpu_kern_sum", "pytorch/bad.cuda_gpu_mem_size_sum", "pytorch/bad.cuda_kern_exec_sum", "pytorch/bad.nvtx_gpu_proj_sum"} {
		if _, err := Load("../samples/" + table + ".csv"); err == nil || !strings.Contains(err.Error(), "nsys stats") {
			t.Errorf("%s, a table of nsys stats: error %v", table, err)
		}
	}
	for from, name := range map[string]string{"../samples/eager.sqlite": "x.ncu-rep", "../samples/shipped-eager-stamps.json.gz": "x.nsys-rep", "../testdata/kineto.json": "x.csv"} {
		content := fixtures.Must(os.ReadFile(from))(t)
		path := filepath.Join(t.TempDir(), name)
		fixtures.Check(t, os.WriteFile(path, content, 0o666))
		if _, err := Load(path); err != nil {
			t.Errorf("%s as %s: %v", from, name, err)
		}
	}
}
