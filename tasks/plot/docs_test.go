package plot

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"gpt2scope/internal/humanize"
	"gpt2scope/internal/require"
	"gpt2scope/predict"
	"gpt2scope/tasks"
)

const docs = "../../docs/"

// stored are the samples of an H200 that the program holds.
func stored(t *testing.T) []tasks.Sample {
	t.Helper()
	samples := require.Value(tasks.ReadFiles("../samples/h200.csv.gz"))(t)
	return samples
}

// The pictures of docs/tasks.md are those of the stored samples. GPT2SCOPE_UPDATE=1 writes them.
func TestDocsPictures(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("other processors may round the coordinates otherwise")
	}
	dir := t.TempDir()
	if _, err := Write(context.Background(), dir, tasks.Charts(stored(t), 1), ""); err != nil {
		t.Fatal(err)
	}
	pictures, err := filepath.Glob(docs + "images/tasks/*.svg")
	if err != nil || len(pictures) < 4 {
		t.Fatalf("%q, %v", pictures, err)
	}
	for _, path := range pictures {
		want := require.Value(os.ReadFile(filepath.Join(dir, filepath.Base(path))))(t)
		if os.Getenv("GPT2SCOPE_UPDATE") != "" {
			require.NoError(t, os.WriteFile(path, want, 0o666))
		}
		if have, err := os.ReadFile(path); err != nil || !bytes.Equal(have, want) {
			t.Errorf("%s is not what 'infer tasks plot' draws of the stored samples: GPT2SCOPE_UPDATE=1 go test ./tasks/plot "+
				"-run DocsPictures writes it", path)
		}
	}
}

// The tables and figures of docs/tasks.md are medians of the stored samples.
func TestDocsFigures(t *testing.T) {
	text := require.Value(os.ReadFile(docs + "tasks.md"))(t)
	page := strings.Join(strings.Fields(string(text)), " ")
	charts := map[string]*tasks.Chart{}
	all := tasks.Charts(stored(t), 1)
	for i := range all {
		charts[all[i].Task+" "+all[i].DType] = &all[i]
	}
	us := func(task string, size int, device string, memory predict.Memory, time string) float64 {
		sizes, us := charts[task+" float32"].Find(device, memory, time)
		i := slices.Index(sizes, size)
		if i < 0 {
			t.Fatalf("%s of %d is not measured", task, size)
		}
		return us[i]
	}
	const gpu = "cuda:0"
	for _, c := range []struct {
		task string
		size int
	}{
		{"vector.add", 1 << 10}, {"vector.add", 1 << 17}, {"vector.add", 1 << 26}, {"reduce.sum", 1 << 27},
		{"matmul", 128}, {"matmul", 1024}, {"matmul", 4096},
	} {
		row := fmt.Sprintf("| `%s` of %s |", c.task, humanize.Thousands(int64(c.size)))
		for _, v := range []float64{
			us(c.task, c.size, tasks.CPU, predict.Host, tasks.TimeWall),
			us(c.task, c.size, gpu, predict.Resident, tasks.TimeWall),
			us(c.task, c.size, gpu, predict.Pinned, tasks.TimeH2D),
			us(c.task, c.size, gpu, predict.Pinned, tasks.TimeKernel),
			us(c.task, c.size, gpu, predict.Pinned, tasks.TimeD2H),
			us(c.task, c.size, gpu, predict.Pinned, tasks.TimeWall),
			us(c.task, c.size, gpu, predict.Pageable, tasks.TimeWall),
		} {
			if v < 100 {
				row += fmt.Sprintf(" %.1f |", v)
			} else {
				row += fmt.Sprintf(" %s |", humanize.Thousands(int64(math.Round(v))))
			}
		}
		if !strings.Contains(page, row) {
			t.Errorf("docs/tasks.md lacks the row\n%s", row)
		}
	}
	for _, x := range tasks.Crossovers(stored(t), 1) {
		if x.Task != "vector.add" && (x.Task != "matmul" || x.DType != "float32" || x.Line != "m=*,n=*,k=*") {
			continue
		}
		want := "none " + from[x.Memory]
		if x.Size != nil && x.Task == "matmul" {
			want = number(*x.Size) + " " + strings.Replace(from[x.Memory], "its", "their", 1)
		} else if x.Size != nil {
			want = "from " + number(*x.Size) + " numbers on " + from[x.Memory]
		}
		if !strings.Contains(page, want) {
			t.Errorf("docs/tasks.md lacks %q", want)
		}
	}
}

// number writes a number with two significant digits and the thousands apart: 99.6 is 100, not 1e+02.
func number(v float64) string {
	unit := math.Pow(10, math.Floor(math.Log10(v))-1)
	return humanize.Significant(math.Round(v/unit)*unit, 2)
}

// from are the words of docs/tasks.md for where the data of a GPU are.
var from = map[predict.Memory]string{
	predict.Resident: "with its data on the GPU", predict.Pinned: "from pinned memory", predict.Pageable: "from pageable memory",
}
