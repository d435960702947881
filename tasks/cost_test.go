package tasks

import (
	"math"
	"slices"
	"testing"

	"gpt2scope/internal/require"
	"gpt2scope/predict"
)

// What is known of work on a CPU before it runs: rows and length of products, the kernel, idle threads where a product
// has few parts.
func TestWork(t *testing.T) {
	xeon, zen3 := Device{Threads: 16, Kernels: "amx"}, Device{Threads: 2, Kernels: "avx2"}
	byName := map[string]*Task{}
	for _, task := range All() {
		byName[task.Name] = task
	}
	pass := 12 * 384 * 384 // of a layer of the shipped model, for each row
	for _, c := range []struct {
		task, shape, dtype string
		on                 Device
		memory             predict.Memory
		want               predict.Work
	}{
		{"vector.add", "n=4", Float32, xeon, predict.Host, predict.Work{Threads: 16, FLOPs: 4, Bytes: 48, Steps: 1}},
		{"vector.add", "n=4", Float32, Device{}, predict.Pinned, predict.Work{FLOPs: 4, Bytes: 48, BytesIn: 32, BytesOut: 16, Steps: 1}},
		{"reduce.sum", "n=100", Float32, Device{}, predict.Pageable, predict.Work{FLOPs: 100, Bytes: 404, BytesIn: 400, BytesOut: 4, Steps: 2}},
		{"matmul", "m=128,n=384,k=1536", Float32, xeon, predict.Host, predict.Work{Threads: 16, Kernel: 3, Idle: 1, Rows: 128, Inner: 1536}}, // four parts of the rows by four of the panels
		{"matmul", "m=64,n=384,k=1536", BFloat16, xeon, predict.Host, predict.Work{Threads: 16, Kernel: 3, Idle: 1, Rows: 64, Inner: 1536}},
		{"matmul", "m=8,n=64,k=48", Float32, zen3, predict.Host, predict.Work{Threads: 2, Kernel: 2, Idle: 2, Rows: 8, Inner: 48}},
		{"matmul", "m=8,n=64,k=48", Float32, xeon, predict.Host, predict.Work{Threads: 16, Kernel: 1, Idle: 8, Rows: 8, Inner: 48}},
		{"matmul", "m=8,n=64,k=48", BFloat16, Device{}, predict.Pinned,
			predict.Work{Rows: 8, Inner: 48, FLOPs: 2 * 8 * 64 * 48, Bytes: 2*(8+64)*48 + 4*8*64, BytesIn: 2 * (8 + 64) * 48, BytesOut: 4 * 8 * 64, Steps: 1}},
		{"gpt2.prefill", "t=8,b=2,l=1,c=384,v=257", Float32, zen3, predict.Host, predict.Work{Threads: 2, Kernel: 2, Idle: 1, Rows: 16}},
		{"gpt2.decode", "past=16,b=1,l=1,c=384,v=257", BFloat16, xeon, predict.Host,
			predict.Work{Threads: 16, Kernel: 1, Rows: 1, Idle: (7*384*384 + 5*384*384*16./12 + 384*257*16./9) / float64(pass+384*257)}},
		{"gpt2.generate", "t=64,n=16,l=1,c=384,v=257", Float32, Device{}, predict.Resident, predict.Work{Rows: 64}},
	} {
		shape := require.Value(ParseShape(c.shape))(t)
		cost := require.Value(byName[c.task].Cost(shape, c.dtype))(t)
		got := cost.work(c.task, c.dtype, c.memory, &c.on)
		if c.want.FLOPs == 0 {
			c.want.FLOPs, c.want.Bytes, c.want.Steps = got.FLOPs, got.Bytes, got.Steps
		}
		c.want.Task, c.want.DType, c.want.Memory = c.task, c.dtype, c.memory
		if math.Abs(got.Idle-c.want.Idle) < 1e-9 {
			c.want.Idle = got.Idle
		}
		if got != c.want {
			t.Errorf("%s %s %s:\n%+v; expected\n%+v", c.task, c.shape, c.dtype, got, c.want)
		}
	}
}

// A sample has each part of a time in its own column.
func TestSampleParts(t *testing.T) {
	b := Bench{Machine: &Machine{Name: "here"}}
	c := Case{Turn: Turn{Task: vectorAdd(), Shape: Shape{{"n", 8}}, DType: Float32}, Device: "cuda:0", Way: Way{Variant: Tuned}, Memory: predict.Pinned}
	cost := require.Value(c.Task.Cost(c.Shape, c.DType))(t)
	s := b.sample(c, cost, 3, Times{Submit: 1, H2D: 2, D2H: 4, Wall: 5})
	if s.SubmitUs != 1 || s.H2DUs != 2 || s.KernelUs != 0 || s.D2HUs != 4 || s.Us != 5 || s.Repeat != 3 || s.Machine != "here" || s.Shape != "n=8" || s.BytesIn != 64 || s.BytesOut != 32 {
		t.Errorf("%+v", s)
	}
}

// Rows are the tuned samples with a floor; of what was measured undisturbed too, only these.
func TestRows(t *testing.T) {
	row := func(variant string, repeat int, disturbed bool, floor float64) Sample {
		s := sampled()
		s.Variant, s.Repeat, s.Disturbed, s.FloorUs = variant, repeat, disturbed, floor
		return s
	}
	other := row(Tuned, 1, true, 1)
	other.Shape = "n=2"
	rows, disturbed, noFloor := Rows([]Sample{row(Tuned, 1, false, 1), row(Tuned, 2, true, 1), row("scalar", 1, false, 1), row(Tuned, 3, false, 0), other})
	if len(rows) != 2 || disturbed != 1 || noFloor != 1 || rows[0] != sampledRow(1) || rows[1].Shape != "n=2" {
		t.Errorf("%d disturbed, %d without a floor, %+v", disturbed, noFloor, rows)
	}
}

func sampledRow(floor float64) predict.Row {
	s := sampled()
	s.FloorUs = floor
	return s.Row
}

// The results of products may be off by rounding, not by a wrong term: one product of two numbers that is missing is
// seen in both types, and so is a sum whose inputs lost the last of their bits.
func TestMatmulError(t *testing.T) {
	a := matmul().Arrays
	s := product(64, 64, 256)
	for dtype, rounding := range map[string]float64{Float32: 0x1p-24 * 16, BFloat16: 0x1p-18} {
		if e := a.Error(s, dtype); e < rounding || e > 0x1p-16 {
			t.Errorf("%s: results may be off by %g of the sum of absolute values; rounding takes %g", dtype, e, rounding)
		}
	}
}

// The interval of a crossover holds 95 of 100 that are drawn: it is nearly four standard errors wide.
func TestCrossoverInterval(t *testing.T) {
	var sizes, widths []float64
	for seed := range uint64(60) {
		samples := lineOfSeed(100, 0.002, 0.1, seed)
		c := Crossovers(samples, seed)[0]
		sizes, widths = append(sizes, math.Log(*c.Size)), append(widths, math.Log(*c.High / *c.Low))
	}
	mean, square := 0.0, 0.0
	for _, s := range sizes {
		mean += s / float64(len(sizes))
	}
	for _, s := range sizes {
		square += (s - mean) * (s - mean) / float64(len(sizes))
	}
	slices.Sort(widths)
	if ratio := widths[len(widths)/2] / math.Sqrt(square); ratio < 2.5 || ratio > 6 {
		t.Errorf("the interval is %.1f standard errors wide; one of 95 %% is 3.9, one of 50 %% 1.3", ratio)
	}
}
