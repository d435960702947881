package tables

import (
	"strings"
	"testing"

	"gpt2scope/traces/internal/fixtures"
	"gpt2scope/traces/load"
)

// TestCPUTraceOfPyTorch: a trace of PyTorch's profiler without a GPU has neither stages nor
// kernels, so its table is by operation. Rows and stacks have the same times as the
// operations, and the rows sum to the wall time.
func TestCPUTraceOfPyTorch(t *testing.T) {
	trace := fixtures.Must(load.Load("../testdata/kineto-cpu.json.gz"))(t)
	if _, err := Summarize(trace, ByFolded, -1); err == nil || !strings.Contains(err.Error(), "a table by op can be made") {
		t.Errorf("by stage: %v", err)
	}
	table := fixtures.Must(SummarizeAny(trace, -1))(t)
	if table.By != ByOp || table.Instead != "the recording has no pass of a model, so it has no stages: the table is by op" || table.Notes[0] != table.Instead {
		t.Errorf("by %s, %q, notes %q", table.By, table.Instead, table.Notes)
	}
	ops, rows, stacks := int64(0), int64(0), int64(0)
	for _, o := range table.Ops {
		ops += o.SelfCPU
	}
	for _, r := range table.Rows {
		if rows += r.Exclusive; r.Kind == RowIdle {
			ops += r.Exclusive
			stacks += r.Exclusive
		}
	}
	nested := false
	for _, s := range table.OpStacks {
		stacks += s.Self
		nested = nested || strings.Join(s.Frames, ";") == "aten::linear;aten::addmm" && s.Calls == 2
	}
	if rows != table.Wall || ops != rows || stacks != rows || !nested {
		t.Errorf("of %d ns the rows sum to %d, operations to %d, stacks to %d: %+v", table.Wall, rows, ops, stacks, table.OpStacks)
	}
}
