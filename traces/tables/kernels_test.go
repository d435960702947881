package tables

import (
	"math"
	"testing"

	"gpt2scope/traces"
	"gpt2scope/traces/internal/fixtures"
)

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

// TestByKernel: kernels of one name and two shapes are two rows.
func TestByKernel(t *testing.T) {
	h := fixtures.Header()
	var events []traces.Event
	for i := range int64(6) {
		pair := fixtures.Launched(uint64(i+1), i*100, i*100+10, i*100+20, i*100+50+i)
		pair[1].Name, pair[1].Registers, pair[1].Block = "gemv", 64, [3]int32{128, 1, 1}
		pair[1].Grid = [3]int32{192 + int32(i%2), 1, 1}
		events = append(events, pair...)
	}
	stamp := traces.Plain(traces.KindKernel, traces.Stream(1, 0, 1, 7), "gemv", 1000, 1)
	events = append(events, stamp)
	table := fixtures.Must(Summarize(fixtures.Trace(h, events...), ByKernel, -1))(t)
	checkWall(t, table)
	var rows []Row
	for _, r := range table.Rows {
		if r.Kind == RowWork {
			rows = append(rows, r)
		}
	}
	if len(rows) != 3 || rows[0].Calls != 3 || rows[0].Busy != 99 || rows[0].Shape.Grid[0] != 193 || rows[0].Occupancy == nil || rows[1].Calls != 3 || rows[1].Busy != 96 || rows[2].Shape != nil || rows[2].Occupancy != nil {
		t.Errorf("rows %+v", rows)
	}
}

// TestQueued: each kernel of a graph was queued since the call of the graph returned, but not those that began before.
func TestQueued(t *testing.T) {
	call := traces.Plain(traces.KindRuntime, traces.API(1, 1), "cudaGraphLaunch", 0, 20)
	call.Correlation = 1
	events := []traces.Event{call}
	for _, start := range []int64{15, 30, 50} {
		k := traces.Plain(traces.KindKernel, traces.Stream(1, 0, 1, 7), "k", start, 10)
		k.Correlation, k.Node = 1, 5
		events = append(events, k)
	}
	table := fixtures.Must(Summarize(fixtures.Trace(&traces.Header{}, events...), ByKernel, -1))(t)
	if r := table.Rows[0]; r.Queued != 10+30 || r.Launches != 1 || r.Kernels != 3 {
		t.Errorf("queued for %d ns by %d launches of %d kernels", r.Queued, r.Launches, r.Kernels)
	}
}
