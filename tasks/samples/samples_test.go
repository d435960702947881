package samples

import (
	"bytes"
	"compress/gzip"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"gpt2scope/internal/require"
	"gpt2scope/predict"
	"gpt2scope/predict/grade"
	"gpt2scope/tasks"
)

var update = flag.Bool("update", false, "write model.json.gz")

// The model that ships is of the samples, and knows their times.
func TestModel(t *testing.T) {
	all := require.Value(Read())(t)
	rows, _, noFloor := tasks.Rows(all)
	if noFloor > 0 {
		t.Errorf("%d rows have no floor", noFloor)
	}
	if *update {
		fitted := require.Value(predict.Fit(t.Context(), rows))(t)
		var b bytes.Buffer
		z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
		require.NoError(t, fitted.Write(z))
		z.Close()
		require.NoError(t, os.WriteFile("model.json.gz", b.Bytes(), 0o666))
		model = b.Bytes()
	}
	m := require.Value(Model())(t)
	medians := require.Value(predict.Medians(rows))(t)
	if !slices.Equal(m.Measured, medians) || m.Rows != len(rows) {
		t.Fatalf("model.json.gz is of other samples; write it with go test ./tasks/samples -update")
	}
	within := 0
	for i := range medians {
		r := &medians[i]
		d, known := m.Device(r)
		e := m.Predict(d, &r.Work)
		if !known || !e.InDomain {
			t.Fatalf("%s %s on %s %s: %+v", r.Task, r.Shape, r.Machine, r.Device, e)
		}
		if math.Abs(math.Log(e.Us/r.Us)) < 0.1 {
			within++
		}
	}
	if part := float64(within) / float64(len(medians)); part < 0.8 {
		t.Errorf("%.0f %% of the measured times are predicted within a tenth", 100*part)
	}
}

// decisions returns a function that chooses between two devices of a machine for one of a thousand stored measurements
// after another.
func decisions(tb testing.TB) func() {
	all := require.Value(Read())(tb)
	m := require.Value(Model())(tb)
	rows, _, _ := tasks.Rows(all)
	cpu, _ := m.Device(&predict.Row{Machine: "h200", Device: "cpu"})
	gpu, known := m.Device(&predict.Row{Machine: "h200", Device: "cuda:0"})
	if !known {
		tb.Fatal("the model knows no GPU")
	}
	const some = 1000
	works := make([]predict.Work, some)
	for i := range works {
		works[i] = rows[i*(len(rows)/some)].Work
	}
	next, gpus := 0, 0
	return func() {
		w := &works[next%some]
		if next++; m.Predict(gpu, w).Us < m.Predict(cpu, w).Us {
			gpus++
		}
	}
}

// A choice by the shipped model allocates nothing.
func TestDecisionAllocatesNothing(t *testing.T) {
	if n := testing.AllocsPerRun(1000, decisions(t)); n != 0 {
		t.Errorf("a choice allocates %v times", n)
	}
}

// The table of docs/cost-model.md is what 'infer tasks check' finds, and the model reaches its goals. It takes a minute
// of processor time.
func TestDocsCheck(t *testing.T) {
	const path = "../../docs/cost-model.md"
	page := require.Value(os.ReadFile(path))(t)
	all := require.Value(Read())(t)
	rows, _, _ := tasks.Rows(all)
	result := require.Value(grade.Check(t.Context(), rows))(t)
	for _, s := range result.Scores {
		line := "| " + s.Way + " | "
		if s.Times > 0 {
			line += fmt.Sprintf("%.1f | %.1f | %.0f | ", 100*s.Median, 100*s.P90, 100*s.Within)
		} else {
			line += "- | - | - | "
		}
		if s.Choices > 0 {
			line += fmt.Sprintf("%.3f | %.3f | %.1f |", s.OverOracle, s.Worst, 100*s.Wrong)
		} else {
			line += "- | - | - |"
		}
		if graded := s.Times > 0 || s.Choices > 0; graded && !strings.Contains(string(page), line) {
			t.Errorf("%s lacks, of %s held out, the row\n%s", path, s.Split, line)
		}
		if s.Way != "model" {
			continue
		}
		if most := map[string]float64{"sizes": 1.03, "task": 1.14, "CPU": 1.14}[s.Split]; s.OverOracle > most {
			t.Errorf("%s held out: choices take %.3f times the oracle's time; the goal is %g", s.Split, s.OverOracle, most)
		}
		if s.Split == "sizes" && s.Median > 0.15 {
			t.Errorf("sizes held out: the median error is %.1f %%; the goal is 15 %%", 100*s.Median)
		}
	}
}
