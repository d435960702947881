package tables

import (
	"math"
	"strings"
	"testing"

	"gpt2scope/traces"
	"gpt2scope/traces/internal/fixtures"
	"gpt2scope/traces/internal/samples"
)

// Stamps end when a kernel's last block is done; CUDA's records go on until the kernel
// has handed over to the next one, and the next one begins early (programmatic dependent
// launch). So by stamps there is idle time before a kernel that is the kernel's own by
// CUDA's records: a stage with the idle time before it takes as long by both.
func TestRecordersAgree(t *testing.T) {
	// From one graph to the next: the time between is the second stage's by one recorder
	// and the first's by the other.
	const begin = "wte+wpe, h.0.ln_1+h.0.attn.c_attn"
	named := func(stage string) string {
		if strings.Contains(begin, stage) {
			return begin
		}
		return stage
	}
	for _, name := range []string{"shipped-graph", "gpt2-L1-graph", "gpt2-L12-graph"} {
		perStep := func(recorder string) (stages, kernels map[string]float64, whole float64) {
			trace := samples.Load(t, name+"-"+recorder+".json.gz")
			if trace.Header.Recorder != recorder {
				t.Fatalf("%s was recorded by %s", name, trace.Header.Recorder)
			}
			table := fixtures.Must(Summarize(trace, ByStage, -1))(t)
			explained(t, trace, table)
			var steps float64
			for _, p := range table.Passes {
				if p.Phase == "decode step" {
					steps = float64(p.Count)
				}
			}
			stages, kernels = map[string]float64{}, map[string]float64{}
			for _, r := range table.Rows {
				if r.Phase == "decode step" && r.Kind == RowWork {
					stages[named(r.Name)] += float64(r.Exclusive) / steps
					kernels[named(r.Name)] += float64(r.Kernels) / steps
				}
			}
			for _, g := range table.Gaps {
				if g.Next == nil || g.Before == nil {
					continue
				}
				if step, ok := trace.Header.Step(g.Next); ok && trace.Header.Plans[g.Next.Plan].Phase == "decode step" {
					for _, c := range g.Causes {
						if c.Name == IdleDependency {
							stages[named(step.Name)] += float64(c.Time) / steps
						}
					}
				}
			}
			for _, ns := range stages {
				whole += ns
			}
			return stages, kernels, whole
		}
		stamps, kernels, whole := perStep(traces.RecorderStamps)
		cupti, others, wholeCUPTI := perStep(traces.RecorderCUPTI)
		if len(stamps) == 0 || len(stamps) != len(cupti) {
			t.Fatalf("%s: %d stages by stamps, %d by cupti", name, len(stamps), len(cupti))
		}
		if ratio := whole / wholeCUPTI; ratio < 0.96 || ratio > 1.04 {
			t.Errorf("%s: a decode step takes %.0f ns by stamps, %.0f ns by cupti", name, whole, wholeCUPTI)
		}
		for stage, ns := range stamps {
			if kernels[stage] != others[stage] {
				t.Errorf("%s: %s has %g kernels by stamps, %g by cupti", name, stage, kernels[stage], others[stage])
			}
			most := 600 + 0.04*ns
			if stage == begin { // CUPTI takes its own time there, once for a graph
				most += 1500
			}
			if off := cupti[stage] - ns; math.Abs(off) > most {
				t.Errorf("%s: %s takes %.0f ns by stamps, %.0f ns by cupti", name, stage, ns, cupti[stage])
			}
			if testing.Verbose() {
				t.Logf("%s: %s takes %.0f ns by stamps, %.0f ns by cupti", name, stage, ns, cupti[stage])
			}
		}
	}
}

// explained checks that next to nothing of a recording of our own is unexplained.
func explained(t *testing.T, trace *traces.Trace, table *Table) {
	t.Helper()
	checkSum(t, table)
	if found := traces.Examine(trace.Header, trace.Attribution); traces.Misleads(found) {
		t.Errorf("the recording misleads: %+v", found)
	}
	if trace.InSteps != trace.Kernels || trace.Kernels == 0 {
		t.Errorf("%d of %d kernels are of steps", trace.InSteps, trace.Kernels)
	}
	if len(trace.Header.Overhead) == 0 || len(trace.Header.Ceilings) == 0 {
		t.Error("recording overhead or ceilings are not known")
	}
}

// TestOwnRecordingsAreExplained has the modes of which TestRecordersAgree has no recordings.
func TestOwnRecordingsAreExplained(t *testing.T) {
	for _, name := range []string{"gpt2-L12-eager-cupti", "gpt2-L12-eager-stamps", "gpt2-L12-persistent-stamps"} {
		t.Run(name, func(t *testing.T) {
			trace := samples.Load(t, name+".json.gz")
			explained(t, trace, fixtures.Must(Summarize(trace, ByStage, -1))(t))
		})
	}
}
