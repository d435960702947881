package plot

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpt2scope/internal/require"
	"gpt2scope/predict"
	"gpt2scope/tasks"
)

// measured makes samples of a CPU and a GPU that cross.
func measured(machine string, devices ...string) []tasks.Sample {
	var out []tasks.Sample
	for n := 1 << 10; n <= 1<<24; n *= 2 {
		for repeat := range 3 {
			s := tasks.Sample{Variant: tasks.Tuned, Repeat: repeat + 1}
			s.Machine, s.Task, s.Shape, s.DType, s.Device = machine, "vector.add", fmt.Sprintf("n=%d", n), tasks.Float32, "cpu"
			s.Memory = predict.Host
			s.Us = 1 + 2e-4*float64(n)*(1+0.02*float64(repeat))
			s.KernelUs = s.Us
			out = append(out, s)
			for _, device := range devices {
				for i, memory := range []predict.Memory{predict.Resident, predict.Pinned, predict.Pageable} {
					s.Device, s.Memory = device, memory
					s.H2DUs, s.KernelUs, s.D2HUs = float64(i)*(5+1e-4*float64(n)), 3+3e-6*float64(n), float64(i)*(4+5e-5*float64(n))
					s.Us = s.H2DUs + s.KernelUs + s.D2HUs + 5
					out = append(out, s)
				}
			}
		}
	}
	return out
}

// The pictures are SVG and PNG, the page has all of them with their facts, and the same samples
// give the same bytes.
func TestWrite(t *testing.T) {
	dir, again := t.TempDir(), t.TempDir()
	samples := measured("here", "cuda:0")
	n, err := Write(context.Background(), dir, tasks.Charts(samples, 1), "the <table>")
	if err != nil || n != 2 {
		t.Fatalf("%d pictures, %v", n, err)
	}
	if _, err := Write(context.Background(), again, tasks.Charts(samples, 1), "the <table>"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"vector.add-float32", "vector.add-float32-parts"} {
		for _, ending := range []string{".svg", ".png"} {
			if info, err := os.Stat(filepath.Join(dir, name+ending)); err != nil || info.Size() < 5000 {
				t.Errorf("%s%s: %v", name, ending, err)
			}
		}
	}
	page := require.Value(os.ReadFile(filepath.Join(dir, "tasks.html")))(t)
	for _, part := range []string{"vector.add, float32", "GPU, kernel alone", "Measured on here", "copy to the GPU", "name=\"viewport\"", "the &lt;table&gt;"} {
		if !strings.Contains(string(page), part) {
			t.Errorf("the page lacks %q", part)
		}
	}
	if n := strings.Count(string(page), "<svg"); n != 2 || strings.Contains(string(page), "<?xml") {
		t.Errorf("the page has %d pictures", n)
	}
	other, _ := os.ReadFile(filepath.Join(again, "tasks.html"))
	if !bytes.Equal(page, other) {
		t.Error("the same samples gave another page")
	}
}

// Several machines and GPUs have pictures of their own; without a GPU there is the CPU's curve;
// without samples there is a page that says so.
func TestOthers(t *testing.T) {
	for _, c := range []struct {
		samples  []tasks.Sample
		pictures int
		file     string
	}{
		{append(measured("one", "cuda:0", "cuda:1"), measured("the/other", "cuda:0")...), 6, "vector.add-float32-one-cuda_1.svg"},
		{measured("here"), 1, "vector.add-float32.svg"},
		{nil, 0, "tasks.html"},
	} {
		dir := t.TempDir()
		n, err := Write(context.Background(), dir, tasks.Charts(c.samples, 1), "")
		if err != nil || n != c.pictures {
			t.Errorf("%d pictures, %v; want %d", n, err, c.pictures)
		}
		if _, err := os.Stat(filepath.Join(dir, c.file)); err != nil {
			entries, _ := os.ReadDir(dir)
			t.Errorf("%v; there are %v", err, entries)
		}
	}
}
