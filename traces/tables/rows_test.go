package tables

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"gpt2scope/ceilings"
	"gpt2scope/internal/require"
	"gpt2scope/traces"
	"gpt2scope/traces/internal/fixtures"
	"gpt2scope/traces/window"
)

// TestFloor works floors out by hand.
func TestFloor(t *testing.T) {
	h := &traces.Header{DType: "bf16", Ceilings: []traces.Ceiling{
		{Device: 0, Name: "read", Unit: "GB/s", Value: 4000},
		{Device: 0, Name: "copy", Unit: "GB/s", Value: 3500},
		{Device: 0, Name: "read", Unit: "GB/s", Value: 8000, Size: 1000},
		{Device: 0, Name: "bf16", Unit: "TFLOP/s", Value: 800},
		{Device: 0, Name: "f32", Unit: "TFLOP/s", Value: 50},
		{Device: -1, Name: "read", Unit: "GB/s", Value: 40},
		{Device: 1, Name: "read", Unit: "GB/s", Value: 1e6},
	}}
	large, small := &traces.Plan{Steps: []traces.Step{{Bytes: 900}, {Bytes: 101}}}, &traces.Plan{Steps: []traces.Step{{Bytes: 900}, {Bytes: 100}}}
	huge := &traces.Plan{Steps: []traces.Step{{Bytes: math.MaxInt64}, {Bytes: math.MaxInt64}, {Bytes: -5}}}
	grows := &traces.Plan{Past: 3, Steps: []traces.Step{{Bytes: 1000, BytesPerPast: 1}}}
	for name, c := range map[string]struct {
		device int32
		plan   *traces.Plan
		step   traces.Step
		past   float64 // of the pass
		want   float64 // 0: not known
	}{
		"bytes":                              {0, large, traces.Step{Bytes: 4000}, 0, 1},
		"bytes are more":                     {0, large, traces.Step{FLOPs: 800_000, Bytes: 8000}, 0, 2},
		"operations are more":                {0, large, traces.Step{FLOPs: 2_400_000, Bytes: 8000}, 0, 3},
		"the whole plan is in a cache":       {0, small, traces.Step{Bytes: 4000}, 0, 0.5},
		"the sum does not fit an int64":      {0, huge, traces.Step{Bytes: 4000}, 0, 1},
		"activations are in a cache":         {0, large, traces.Step{Bytes: 4800, Activations: 800}, 0, 1.1},
		"more activations than bytes":        {0, large, traces.Step{Bytes: 800, Activations: 900}, 0, 0.1},
		"many activations are in memory":     {0, small, traces.Step{Bytes: 4000, Activations: 4000}, 0, 1},
		"a product, in the recording's type": {0, large, traces.Step{Op: "Linear", FLOPs: 1_600_000}, 0, 2},
		"attention, in the recording's type": {0, large, traces.Step{Op: "Attention", FLOPs: 1_600_000}, 0, 2},
		"anything else is float32":           {0, large, traces.Step{Op: "Add", FLOPs: 100_000}, 0, 2},
		"a product in a type of its own":     {0, large, traces.Step{Op: "Linear", FLOPs: 100_000, Multiply: "f32"}, 0, 2},
		"the pass still fits in a cache":     {0, grows, traces.Step{Bytes: 4000}, 3, 0.5},
		"a later pass no longer does":        {0, grows, traces.Step{Bytes: 4000}, 4, 1},
		"the CPU":                            {-1, large, traces.Step{Bytes: 4000}, 0, 100},
		"the CPU's rate is not known":        {-1, large, traces.Step{FLOPs: 1, Bytes: 4000}, 0, 0},
		"another device":                     {2, large, traces.Step{Bytes: 4000}, 0, 0},
		"no cost":                            {0, large, traces.Step{}, 0, 0},
		"a cost that overflowed counts as 0": {0, large, traces.Step{FLOPs: -1, Bytes: 4000}, 0, 1},
	} {
		pass := traces.Plain(traces.KindPass, traces.Thread(1, 1), "decode step", 0, 100)
		pass.Value = c.past
		if _, _, floor := costsOf(h, c.device).of(c.plan, c.step, &pass); math.Abs(floor.Time-c.want) > 1e-9 {
			t.Errorf("%s: %g ns, not %g", name, floor.Time, c.want)
		}
	}
	f32 := *h
	f32.DType = "f32"
	if _, _, floor := costsOf(&f32, 0).of(large, traces.Step{Op: "Linear", FLOPs: 50_000, Bytes: 1}, nil); floor.Time != 1 || floor.Bound != ceilings.BoundFLOPs {
		t.Errorf("in float32 the floor is %g ns", floor.Time)
	}
}

// TestFoldLayers folds passes of three layers whose fused steps reach into the next layer.
func TestFoldLayers(t *testing.T) {
	h := fixtures.Plan("wte+wpe+h.0.ln_1", "h.0.attn", "h.0.residual_2+h.1.ln_1", "h.1.attn", "h.1.residual_2+h.2@1.ln_1", "h.2@1.attn", "h.2@1.residual_2+ln_f", "lm_head")
	for i := range h.Plans[0].Steps {
		h.Plans[0].Steps[i].Bytes = 1000
	}
	h.Ceilings = []traces.Ceiling{{Name: "read", Unit: "GB/s", Value: 100}, {Name: "bf16", Unit: "TFLOP/s", Value: 1}}
	duration := func(_, tag int) int64 { return int64(100 * (1 + tag)) }
	table := require.Value(Summarize(fixtures.Trace(h, fixtures.Passes(h, 0, 4, duration, nil)...), ByStage, -1))(t)
	folded := FoldLayers(table)
	var names []string
	wall, rows := int64(0), 0
	for _, f := range folded {
		if f.Kind == RowWork {
			names = append(names, f.Name)
		}
		wall, rows = wall+f.Exclusive, rows+len(f.Of)
	}
	if want := []string{"wte+wpe+h.0.ln_1", "h.N.attn", "h.N.residual_2+h.(N+1).ln_1", "h.2@1.residual_2+ln_f", "lm_head"}; !slices.Equal(names, want) {
		t.Errorf("the stages are %q, not %q", names, want)
	}
	if wall != table.Wall || rows != len(table.Rows) {
		t.Errorf("the folded rows sum to %d ns of %d, of %d rows of %d", wall, table.Wall, rows, len(table.Rows))
	}
	attn := folded[1]
	if attn.Layers != 3 || attn.Calls != 12 || attn.Kernels != 12 || attn.Exclusive != 4*(200+400+600) || attn.Min != 200 || attn.Median != 400 || attn.Max != 600 ||
		attn.Bytes != 12000 || attn.Floor != 120 || attn.Op != "Linear" || !slices.Equal(attn.Of, []int{1, 3, 5}) {
		t.Errorf("%+v", attn)
	}
	if first, last := folded[0], folded[4]; first.Layers != 1 || last.Layers != 0 || last.Name != "lm_head" {
		t.Errorf("%+v, %+v", first, last)
	}
}

// TestOccupancy has what NVIDIA's occupancy calculator says for compute capability
// 9.0, worked out by hand, and what is not known.
func TestOccupancy(t *testing.T) {
	h200 := traces.Device{Compute: "9.0", SMs: 132, WarpsPerSM: 64, BlocksPerSM: 32, RegistersPerSM: 65536, SharedPerSM: 233472}
	shape := func(grid, block, registers, static, dynamic int32) Shape {
		return Shape{[3]int32{grid, 1, 1}, [3]int32{block, 1, 1}, registers, static, dynamic}
	}
	for name, c := range map[string]struct {
		shape Shape
		want  Occupancy
	}{
		// 90 registers are 2880 a warp, given as 3072: 21 warps, 20 in whole fours: one block of 16.
		"registers in units":    {shape(1, 512, 90, 600, 36768), Occupancy{16, 1, 25, "registers", 1. / 132, 100 * 131. / 132}},
		"warps":                 {shape(264, 1024, 32, 0, 0), Occupancy{32, 2, 100, "warps, registers", 1, 0}},
		"blocks":                {shape(132*32+1, 32, 16, 0, 0), Occupancy{1, 32, 50, "blocks", (132*32 + 1) / (132. * 32), 100 * (132*32 - 1) / (132. * 32)}},
		"a warp that is begun":  {shape(1, 33, 16, 0, 0), Occupancy{2, 32, 100, "warps, blocks", 1. / 4224, 100 * 4223. / 4224}},
		"96 threads":            {shape(6, 96, 22, 0, 0), Occupancy{3, 21, 98.4375, "warps", 6. / 2772, 100 * 2766. / 2772}},
		"shared with reserve":   {shape(132, 128, 32, 0, 57344), Occupancy{4, 4, 25, "shared memory", 0.25, 75}}, // 57344+1024: exactly 4 of them
		"a byte of shared more": {shape(132, 128, 32, 1, 57344), Occupancy{4, 3, 18.75, "shared memory", 1. / 3, 100 * 2. / 3}},
	} {
		got, ok := OccupancyOf(&h200, &c.shape)
		near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
		if !ok || got.Warps != c.want.Warps || got.Blocks != c.want.Blocks || got.Limit != c.want.Limit || !near(got.Percent, c.want.Percent) || !near(got.Waves, c.want.Waves) || !near(got.Tail, c.want.Tail) {
			t.Errorf("%s: %+v, %v, not %+v", name, got, ok, c.want)
		}
	}
	// Before 8.0 nothing is reserved; limits that a source leaves out are those of the capability.
	v100 := traces.Device{Compute: "7.0", SMs: 80, WarpsPerSM: 64, SharedPerSM: 98304}
	s := shape(80, 64, 32, 0, 49152)
	if o, ok := OccupancyOf(&v100, &s); !ok || o.Blocks != 2 || o.Limit != "shared memory" {
		t.Errorf("7.0: %+v, %v", o, ok)
	}
	unknown := h200
	unknown.WarpsPerSM = 0
	hostile := h200
	hostile.SMs, hostile.BlocksPerSM = math.MaxInt64, math.MaxInt64
	noShared := h200
	noShared.SharedPerSM = 0
	for name, c := range map[string]struct {
		d *traces.Device
		s Shape
	}{
		"nothing of the shape":   {&h200, Shape{}},
		"no registers":           {&h200, shape(1, 32, 0, 0, 0)},
		"a block too large":      {&h200, shape(1, 2048, 16, 0, 0)},
		"negative":               {&h200, shape(-1, 32, 16, 0, 0)},
		"more than an SM has":    {&h200, shape(1, 32, 16, 0, 240000)},
		"device not known":       {&traces.Device{}, shape(1, 32, 16, 0, 0)},
		"warps not known":        {&unknown, shape(1, 32, 16, 0, 0)},
		"hostile device":         {&hostile, shape(1, 32, 16, 0, 0)},
		"its shared not known":   {&noShared, shape(1, 32, 16, 1, 0)},
		"registers of no number": {&h200, shape(1, 1024, math.MaxInt32, 0, 0)},
	} {
		if o, ok := OccupancyOf(c.d, &c.s); ok {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// TestLaunches has a launch that is queued, one that finds nothing queued, one
// whose kernel begins before its call returns, and a graph.
func TestLaunches(t *testing.T) {
	graphCall := traces.Plain(traces.KindRuntime, traces.API(1, 1), "cudaGraphLaunch", 300, 20)
	graphCall.Correlation = 9
	node := func(start, end int64) traces.Event {
		k := traces.Plain(traces.KindKernel, traces.Stream(1, 0, 1, 7), "node", start, end-start)
		k.Correlation, k.Node = 9, uint64(start)
		return k
	}
	events := []traces.Event{graphCall, node(330, 340), node(345, 400)}
	events = append(events, fixtures.Launched(1, 0, 10, 15, 100)...)     // first: nothing queued, since the table's begin
	events = append(events, fixtures.Launched(2, 20, 30, 101, 120)...)   // found 1
	events = append(events, fixtures.Launched(3, 40, 50, 121, 130)...)   // found 2
	events = append(events, fixtures.Launched(4, 200, 240, 220, 230)...) // starved from 130 to 220; began before its call returned
	events = append(events, fixtures.Launched(5, 325, 335, 401, 410)...) // finds the graph's two
	lost := traces.Plain(traces.KindKernel, traces.Stream(1, 0, 1, 7), "lost", 420, 5)
	events = append(events, lost)
	tr := fixtures.Trace(&traces.Header{}, events...)
	table := require.Value(Summarize(tr, ByKernel, -1))(t)
	found, _ := table.Window.Launches(table.Time)
	starved, ns := window.Starved(found, table.Time)
	var got []string
	for _, l := range found {
		got = append(got, fmt.Sprintf("%s %s: delay %d, depth %d, work %d", l.Call.Name, l.First.Name, window.Delay(l.Call, l.First), l.Depth, l.Work))
	}
	want := []string{"cudaLaunchKernel k1: delay 5, depth 0, work 1", "cudaLaunchKernel k2: delay 71, depth 1, work 1", "cudaLaunchKernel k3: delay 71, depth 2, work 1",
		"cudaLaunchKernel k4: delay 0, depth 0, work 1", "cudaGraphLaunch node: delay 10, depth 0, work 2", "cudaLaunchKernel k5: delay 66, depth 2, work 1"}
	if starved != 3 || ns != 90+90 || !slices.Equal(got, want) {
		t.Errorf("%d starved, %d ns\n%s", starved, ns, strings.Join(got, "\n"))
	}
}

// TestByOp has operations of a framework in one another, one in another of its
// name, two that overlap without nesting, and work outside.
func TestByOp(t *testing.T) {
	op := func(name string, id, parent uint64, start, end int64) traces.Event {
		e := traces.Plain(traces.KindOp, traces.Thread(1, 1), name, start, end-start)
		e.ID, e.Parent = id, parent
		return e
	}
	events := []traces.Event{
		op("linear", 1, 0, 0, 100), op("addmm", 2, 0, 10, 90), op("addmm", 3, 0, 20, 30),
		op("a", 4, 0, 200, 220), op("b", 5, 0, 210, 230),
	}
	events = append(events, fixtures.Launched(1, 40, 50, 60, 95)...)
	events = append(events, fixtures.Launched(2, 92, 95, 100, 107)...)
	events = append(events, fixtures.Launched(3, 150, 155, 160, 163)...)
	tr := fixtures.Trace(&traces.Header{}, events...)
	table := require.Value(Summarize(tr, ByOp, -1))(t)
	want := []OpRow{
		{"addmm", 70, 80, 35, 35, 2, 1},
		{"linear", 17, 100, 7, 42, 1, 1},
		{OutsideOps, 0, 0, 3, 3, 1, 1},
		{"b", 20, 20, 0, 0, 1, 0},
		{"cudaLaunchKernel", 18, 18, 0, 0, 3, 0},
		{"a", 10, 20, 0, 0, 1, 0},
	}
	slices.SortFunc(want[3:], func(a, b OpRow) int { return int(b.SelfCPU - a.SelfCPU) })
	if !slices.Equal(table.Ops, want) {
		t.Errorf("rows\n%+v, not\n%+v", table.Ops, want)
	}
}

// Rows that are joined keep the sums of a table; a single one stays itself.
func TestTop(t *testing.T) {
	rows := []Row{{Name: "a", Kind: RowWork, Exclusive: 1, Floor: 1}, {Name: "b", Kind: RowWork, Exclusive: 5, Floor: 2}, {Name: "c", Kind: RowWork, Exclusive: 3}, {Name: "idle", Kind: RowIdle, Exclusive: 2}}
	for _, isSorted := range []bool{false, true} {
		top := TopRows(rows, 1, isSorted)
		first := map[bool]string{false: "b", true: "a"}[isSorted]
		if len(top) != 3 || top[0].Name != first || top[1].Name != "idle" || top[2].Name != "2 more" || top[2].Floor != 0 || top[0].Exclusive+top[2].Exclusive != 9 {
			t.Errorf("sorted %t: %+v", isSorted, top)
		}
	}
}

// TestDescribed: drafts of more and of fewer layers are passes of one kind to a reader, verifying passes of more and
// of fewer tokens are not.
func TestDescribed(t *testing.T) {
	h := &traces.Header{Plans: []traces.Plan{{Phase: "draft step", Tokens: 1}, {Phase: "draft step", Tokens: 1}, {Phase: "verify step", Tokens: 4}, {Phase: "verify step", Tokens: 3}}}
	got := described(h, []Passes{{Phase: "draft step", Count: 2}, {Phase: "verify step", Count: 1, plan: 2}, {Phase: "draft step", Count: 3, plan: 1}, {Phase: "verify step", Count: 1, plan: 3}})
	if want := "5 draft steps, 1 verify step of 4 tokens, 1 verify step of 3 tokens"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
