package predict

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// h200Decode are the decode rows of docs/measurements/2026-11-21-h200-bench-rows.txt, in microseconds.
// A pass has 5 steps for each layer and 3 more: the embedding, lm_head and sampling.
var h200Decode = []Row{
	decodeRow("gpt2, 1 layer", 1, 20.8, 41.2), decodeRow("gpt2", 12, 59.5, 200.1), decodeRow("gpt2-xl", 48, 730.2, 1380.9),
	decodeRow("6 x 384", 6, 5.9, 70.5), decodeRow("1 x 384", 1, 1.0, 17.4),
}

func decodeRow(shape string, layers, floor, us float64) Row {
	w := Work{Task: "gpt2.decode", DType: "bfloat16", FloorUs: floor, Steps: 5*layers + 3, Rows: 1, Bytes: 4e3 * floor, Memory: Resident}
	return Row{Machine: "h200", Device: "cuda:0", Shape: shape, Work: w, Us: us}
}

// The law of decode steps on an H200: the floor alone is off by 40 %, floor and steps by 4 %.
func TestLawOfDecode(t *testing.T) {
	law, err := fitLaw(h200Decode, []float64{1, 1, 1, 1, 1}, firstLaw)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(law.Floor-1.25) > 0.03 || math.Abs(law.StepUs-1.97) > 0.06 || law.BaseUs > 1 {
		t.Errorf("the law is %+v, expected 1.25 floor + 1.97 us x steps", law)
	}
	for out := range h200Decode {
		rows := slices.Delete(slices.Clone(h200Decode), out, out+1)
		law, err := fitLaw(rows, []float64{1, 1, 1, 1}, firstLaw)
		if err != nil {
			t.Fatal(err)
		}
		r := h200Decode[out]
		if e := law.Time(&r.Work)/r.Us - 1; math.Abs(e) > 0.05 {
			t.Errorf("%s, left out, is predicted %.1f %% off", r.Shape, 100*e)
		}
	}
}

// lawRows makes measurements by a law, with noise.
func lawRows(machine string, cpu, gpu Law, noise float64, seed uint64) []Row {
	random := rand.New(rand.NewPCG(seed, 1))
	var rows []Row
	for _, task := range []string{"vector.add", "reduce.sum", "matmul", "gpt2.decode"} {
		for k := range 12 {
			n := math.Exp2(10 + 1.5*float64(k))
			w := Work{Task: task, DType: "float32", Bytes: 12 * n, Rows: 1, Steps: 1}
			if task == "gpt2.decode" {
				w.Steps = float64(8 + 5*k)
			}
			for _, device := range []struct {
				name, memory string
				law          Law
				rate         float64 // bytes per us
			}{{"cpu", "host", cpu, 4e4}, {"cuda:0", "pageable", gpu, 4e6}, {"cuda:0", "pinned", gpu, 4e6}, {"cuda:0", "resident", gpu, 4e6}} {
				w := w
				w.FloorUs = w.Bytes / device.rate
				w.Memory, _ = ParseMemory(device.memory)
				if device.memory == "pageable" || device.memory == "pinned" {
					w.BytesIn, w.BytesOut = 8*n, 4*n
				}
				for range 3 {
					us := device.law.Time(&w) * math.Exp(noise*random.NormFloat64())
					rows = append(rows, Row{Machine: machine, Key: "versions of " + machine, Device: device.name, Shape: fmt.Sprintf("n=%.0f", n), Work: w, Us: us})
				}
			}
		}
	}
	return rows
}

var (
	testCPU = Law{Floor: 1.2, StepUs: 0.7, BaseUs: 1}
	testGPU = Law{Floor: 1.25, StepUs: 2, BaseUs: 5,
		PageableIn: Transfer{9, 100}, PageableOut: Transfer{8, 120}, PinnedIn: Transfer{7, 20}, PinnedOut: Transfer{6, 19}}
)

// The fit finds the law that made the times, and predicts sizes between.
func TestFitFindsLaw(t *testing.T) {
	m, err := Fit(lawRows("m", testCPU, testGPU, 0.02, 1))
	if err != nil {
		t.Fatal(err)
	}
	gpu, known := m.Device("m", "", "cuda:0")
	if !known {
		t.Fatalf("the device is not known: %d", len(m.Devices))
	}
	if again, known := m.Device("", "versions of m", "cuda:0"); again != gpu || !known {
		t.Errorf("by its key the device is %d, %v; expected %d", again, known, gpu)
	}
	law := m.Devices[gpu].cell(op{"gpt2.decode", "float32"}).Law
	if math.Abs(law.Floor/1.25-1) > 0.1 || math.Abs(law.StepUs/2-1) > 0.2 || math.Abs(law.PinnedIn.UsPerMiB/20-1) > 0.3 {
		t.Errorf("the law is %+v, expected about %+v", law, testGPU)
	}
	for _, n := range []float64{3e3, 7e4, 9e6} {
		w := Work{Task: "reduce.sum", DType: "float32", Bytes: 12 * n, Rows: 1, Steps: 1, FloorUs: 12 * n / 4e6, BytesIn: 8 * n, BytesOut: 4 * n, Memory: Pageable}
		want, e := testGPU.Time(&w), m.Predict(gpu, &w)
		if math.Abs(e.Us/want-1) > 0.1 || !e.InDomain || e.Low > e.Us || e.High < e.Us || e.High > 2*e.Us {
			t.Errorf("n = %g: %+v, expected %.4g", n, e, want)
		}
	}
}

// A device is found by its machine, else by its key, else by its processor, else by its kind.
func TestModelDevice(t *testing.T) {
	m := &Model{Devices: []Device{
		{Device: "cpu"}, {Device: "cpu", Key: "P, kernels a"}, {Machine: "one", Key: "P, 8 threads, kernels a", Device: "cpu"}, {Machine: "two", Key: "P, 8 threads, kernels a", Device: "cpu"},
		{Device: "cuda"}, {Machine: "two", Key: "G", Device: "cuda:0"},
		{Device: "cpu", Key: "Q (family 6, model 1), kernels a"}, {Machine: "three", Key: "Q (family 6, model 1), 2 threads, kernels a", Device: "cpu"},
	}}
	for _, c := range []struct {
		machine, key, device string
		index                int
		known                bool
	}{
		{"two", "P, 8 threads, kernels a", "cpu", 3, true},
		{"two", "", "cpu", 3, true},
		{"other", "P, 8 threads, kernels a", "cpu", 2, true},
		{"other", "P, 1 thread, kernels a", "cpu", 1, false},
		{"other", "P, 8 threads, kernels b", "cpu", 0, false},
		{"other", "", "cpu", 0, false},
		{"two", "", "cuda:0", 5, true},
		{"two", "", "cuda:1", 4, false},
		{"other", "G", "cuda:0", 5, true},
		{"other", "", "tpu", -1, false},
		{"other", "Q (family 6, model 1), 2 threads, kernels a", "cpu", 7, true},
		{"other", "Q (family 6, model 1), 4 threads, kernels a", "cpu", 6, false},
		{"other", "Q (family 6, model 2), 2 threads, kernels a", "cpu", 0, false}, // another processor of this name
		{"other", "Q, 2 threads, kernels a", "cpu", 0, false},
		{"other", "P (family 6, model 1), 8 threads, kernels a", "cpu", 2, true}, // measured before keys had models
		{"other", "P (family 6, model 1), 1 thread, kernels a", "cpu", 1, false},
		{"other", "P (family 6", "cpu", 0, false},
	} {
		if i, known := m.Device(c.machine, c.key, c.device); i != c.index || known != c.known {
			t.Errorf("%s of %q, %q: device %d, known %v; expected %d, %v", c.device, c.machine, c.key, i, known, c.index, c.known)
		}
	}
}

// A part of the time of work does not go with the ceilings of CPUs, and one that was never measured is predicted by that, also if it is much faster than all others.
func TestFitStandard(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 1))
	work := func(n, rate float64) Work {
		return Work{Task: "matmul", DType: "float32", FLOPs: 2 * n * n * n, Bytes: 12 * n * n, Rows: n, Inner: n, Steps: 1, FloorUs: 2 * n * n * n / rate}
	}
	time := func(n, rate float64) float64 { return 2 * n * n * n * (1.3/rate + 1.1/standardFLOPs) }
	var rows []Row
	for _, rate := range []float64{2e5, 5e5, 3e6} {
		for k := range 40 {
			n := math.Exp2(6 + float64(k)/8)
			rows = append(rows, Row{Machine: fmt.Sprint(rate), Device: "cpu", Shape: fmt.Sprint(k), Work: work(n, rate), Us: time(n, rate) * math.Exp(0.03*random.NormFloat64())})
		}
	}
	m, err := Fit(rows)
	if err != nil {
		t.Fatal(err)
	}
	d, known := m.Device("never measured", "", "cpu")
	w := work(500, 12e6)
	if us, want := m.Predict(d, &w).Us, time(500, 12e6); known || math.Abs(math.Log(us/want)) > 0.15 {
		t.Errorf("%.4g us on a CPU that is four times faster than others, expected %.4g", us, want)
	}
}

// Idle threads make the floor longer, and a GPU's is what it is.
func TestFloorOfWork(t *testing.T) {
	for _, c := range []struct {
		name string
		w    Work
		want float64
	}{
		{"FLOPs", Work{DType: "float32", FLOPs: 5e6, Bytes: 1e5, FloorUs: 3, Idle: 1}, 3 + 5},
		{"bytes", Work{DType: "float32", FLOPs: 1e6, Bytes: 4e5, FloorUs: 3}, 3 + 4},
		{"bfloat16", Work{DType: "bfloat16", FLOPs: 8e6, Bytes: 1e5, FloorUs: 3}, 3 + 4},
		{"idle threads", Work{DType: "float32", FLOPs: 5e6, FloorUs: 3, Idle: 2.5}, 7.5 + 5},
		{"a GPU", Work{DType: "float32", FLOPs: 5e6, FloorUs: 3, Memory: Resident, Idle: 2}, 3},
		{"not known", Work{DType: "float32", FLOPs: math.NaN(), Bytes: math.NaN(), FloorUs: 3}, 3},
	} {
		if got := c.w.floor(); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s: the floor is %g, expected %g", c.name, got, c.want)
		}
	}
}

// A processor that was measured with other numbers of threads is predicted by these measurements, not by those of other processors.
func TestFitProcessor(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 1))
	work := func(n, threads float64) Work {
		return Work{Task: "vector.add", DType: "float32", FLOPs: n, Bytes: 12 * n, Rows: 1, Steps: 1, Threads: threads, FloorUs: 12 * n / (1e4 * threads)}
	}
	slow := map[string]float64{"P, kernels a": 1.2, "Q, kernels a": 4}
	var rows []Row
	for processor, factor := range slow {
		for _, threads := range []float64{2, 8} {
			name, kernels, _ := strings.Cut(processor, ", ")
			key := fmt.Sprintf("%s, %.0f threads, %s", name, threads, kernels)
			for k := range 40 {
				w := work(math.Exp2(14+float64(k)/4), threads)
				rows = append(rows, Row{Machine: key, Key: key, Device: "cpu", Shape: fmt.Sprint(k), Work: w, Us: (factor*w.FloorUs + 1) * math.Exp(0.03*random.NormFloat64())})
			}
		}
	}
	m, err := Fit(rows)
	if err != nil {
		t.Fatal(err)
	}
	general, _ := m.Device("never measured", "R, 4 threads, kernels a", "cpu")
	if other, _ := m.Device("never measured", "P, 4 threads, kernels b", "cpu"); other != general || m.Devices[general].Key != "" {
		t.Errorf("a processor with other kernels is device %d, one that was never measured %d, %q", other, general, m.Devices[general].Key)
	}
	for processor, factor := range slow {
		name, kernels, _ := strings.Cut(processor, ", ")
		d, known := m.Device("never measured", name+", 4 threads, "+kernels, "cpu")
		if known || m.Devices[d].Key != processor {
			t.Fatalf("%s with 4 threads is %q, known %v", processor, m.Devices[d].Key, known)
		}
		for _, n := range []float64{1e5, 3e6} {
			w := work(n, 4)
			if e, want := m.Predict(d, &w), factor*w.FloorUs+1; math.Abs(math.Log(e.Us/want)) > 0.15 || e.InDomain || !(e.Low < want && want < e.High) {
				t.Errorf("%s with 4 threads, %g values: %+v, expected %.4g", processor, n, e, want)
			}
		}
	}
}

// What a start costs grows with what work needs made ready, and a task with few starts has those of others.
func TestFitStart(t *testing.T) {
	want := Start{Us: 2e5, Floor: 30, MiBUs: 500, LibraryUs: 1.5e5}
	random := rand.New(rand.NewPCG(3, 1))
	var rows []Row
	var warm []float64
	for k := range 40 {
		w := Work{Task: "a", DType: "float32", FloorUs: math.Exp2(float64(k % 13)), Bytes: math.Exp2(10 + float64(k*7%18)), Rows: float64(1 + k%3*20), Memory: Pageable, Cold: true}
		warm = append(warm, 2*w.FloorUs)
		rows = append(rows, Row{Work: w, Us: (want.Time(&w) + 2*w.FloorUs) * math.Exp(0.02*random.NormFloat64())})
	}
	rows[7].Us *= 3 // the first start after that of the machine
	got, err := fitStart(rows, warm, Start{}, startSquares(rows))
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		if i != 7 && math.Abs(math.Log((got.Time(&rows[i].Work)+warm[i])/rows[i].Us)) > 0.15 {
			t.Errorf("%+v: a start of %.0f us, measured %.0f", rows[i].Work, got.Time(&rows[i].Work)+warm[i], rows[i].Us)
		}
	}
	near, err := fitStart(rows[:1], warm[:1], got, startSquares(rows)) // of small work without the library
	if large := (Work{FloorUs: 1e3, Bytes: 1e8, Rows: 100, Memory: Pageable}); err != nil || math.Abs(math.Log(near.Time(&large)/got.Time(&large))) > 0.2 {
		t.Errorf("after one start %+v, before %+v: %v", near, got, err)
	}
}

// A cold start costs what it took beyond a warm run, and leaves the times of warm runs as they are.
func TestFitCold(t *testing.T) {
	rows := lawRows("m", testCPU, testGPU, 0.02, 1)
	warm, err := Fit(rows)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range slices.Clone(rows) {
		if r.Task == "matmul" && r.Memory == Resident && r.FloorUs < 10 {
			r.Cold, r.Us = true, r.Us+2e5
			rows = append(rows, r)
		}
	}
	m, err := Fit(rows)
	if err != nil {
		t.Fatal(err)
	}
	gpu, _ := m.Device("m", "", "cuda:0")
	w := Work{Task: "matmul", DType: "float32", Bytes: 12e5, Rows: 1, Steps: 1, FloorUs: 0.3, Memory: Resident}
	before, after := warm.Predict(gpu, &w), m.Predict(gpu, &w)
	w.Cold = true
	cold := m.Predict(gpu, &w)
	if before != after || math.Abs(cold.Us-after.Us-2e5) > 5 || !cold.InDomain || cold.Low > 2e5 || cold.High < 2.0001e5 {
		t.Errorf("before %+v, after %+v, cold %+v", before, after, cold)
	}
	w.Task = "vector.add" // whose cold start was not measured
	if e := m.Predict(gpu, &w); e.InDomain || math.Abs(e.Us/2e5-1) > 0.01 || e.High/e.Low < 1.5 {
		t.Errorf("another task: %+v", e)
	}
}

// What no smooth law follows is found from measured work nearby: matrix products of few columns take twice as long.
func TestPoints(t *testing.T) {
	rows := lawRows("m", testCPU, testGPU, 0.02, 1)
	var all []Row
	for i := range rows {
		if r := rows[i]; r.Task == "matmul" && r.Device == "cpu" {
			for _, inner := range []float64{64, 4096} {
				r := r
				r.Inner, r.Shape = inner, fmt.Sprintf("%s,k=%g", r.Shape, inner)
				if inner == 64 {
					r.Us *= 2
				}
				all = append(all, r)
			}
		} else {
			all = append(all, r)
		}
	}
	odd := 0
	fit := filter(all, func(r *Row) bool { odd++; return r.Task != "matmul" || odd/3%4 != 0 })
	m, err := Fit(fit)
	if err != nil {
		t.Fatal(err)
	}
	cpu, _ := m.Device("m", "", "cpu")
	if p := m.Devices[cpu].cell(op{"matmul", "float32"}).Points; len(p) != 1 || len(p[0].Weight) == 0 || len(p[0].Weight) > maxPoints {
		t.Errorf("%+v", p)
	}
	worst := 0.0
	for i := range all {
		if r := &all[i]; r.Task == "matmul" && r.Device == "cpu" {
			worst = max(worst, math.Abs(math.Log(m.Predict(cpu, &r.Work).Us/r.Us)))
		}
	}
	if worst > 0.3 { // without points half of these are off by a factor of 1.4
		t.Errorf("a product is predicted off by %.2f", worst)
	}
}

// A task of which one small copy was measured, with a longer latency than others have, has the link of the other tasks.
func TestLinkOfTask(t *testing.T) {
	rows := lawRows("m", testCPU, testGPU, 0.02, 1)
	var fit []Row
	var far *Row
	for i := range rows {
		r := &rows[i]
		switch {
		case r.Task != "matmul" || r.Device != "cuda:0" || r.Memory != Pageable:
			fit = append(fit, *r)
		case r.Shape == "n=1024":
			small := *r
			small.Us += 25
			fit = append(fit, small)
		case far == nil || r.Bytes > far.Bytes:
			far = r
		}
	}
	m, err := Fit(fit)
	if err != nil {
		t.Fatal(err)
	}
	gpu, _ := m.Device("m", "", "cuda:0")
	if e, want := m.Predict(gpu, &far.Work), testGPU.Time(&far.Work); math.Abs(e.Us/want-1) > 0.3 {
		t.Errorf("%s with copies is predicted %.0f us, expected %.0f", far.Shape, e.Us, want)
	}
}

// Errors of measurements that are left out are those of a process without them.
func TestLeftOut(t *testing.T) {
	rows, err := Medians(filter(lawRows("m", testCPU, testGPU, 0.2, 4), func(r *Row) bool { return r.Device == "cpu" }))
	if err != nil {
		t.Fatal(err)
	}
	p, err := fitProcess("cpu", rows, firstLaw)
	if err != nil {
		t.Fatal(err)
	}
	var all mat.Dense // the covariance with the noise
	if err := all.Inverse(&p.inverse); err != nil {
		t.Fatal(err)
	}
	out := []int{3, 4, 20}
	var kept []int
	for i := range rows {
		if !slices.Contains(out, i) {
			kept = append(kept, i)
		}
	}
	k, y := mat.NewDense(len(kept), len(kept), nil), mat.NewVecDense(len(kept), nil)
	for i, a := range kept {
		y.SetVec(i, p.left[a])
		for j, b := range kept {
			k.Set(i, j, all.At(a, b))
		}
	}
	var alpha mat.VecDense
	if err := alpha.SolveVec(k, y); err != nil {
		t.Fatal(err)
	}
	for i, e := range p.without(out) {
		predicted := 0.0
		for j, b := range kept {
			predicted += all.At(out[i], b) * alpha.AtVec(j)
		}
		if want := p.left[out[i]] - predicted; math.Abs(e-want) > 1e-6 || math.Abs(e) < 1e-3 {
			t.Errorf("measurement %d, left out, is off by %g; expected %g", out[i], e, want)
		}
	}
}

// Points of a cell predict what the process of all measurements expects.
func TestPointsFollowProcess(t *testing.T) {
	rows, err := Medians(filter(lawRows("m", testCPU, testGPU, 0.2, 4), func(r *Row) bool { return r.Device == "cpu" }))
	if err != nil {
		t.Fatal(err)
	}
	m, err := Fit(rows)
	if err != nil {
		t.Fatal(err)
	}
	law, err := fitLaw(rows, alike(rows, byTask), firstLaw)
	if err != nil {
		t.Fatal(err)
	}
	p, err := fitProcess("cpu", rows, law)
	if err != nil {
		t.Fatal(err)
	}
	cpu, _ := m.Device("m", "", "cpu")
	for i := range rows {
		of := p.labels[i]
		want := law.Time(&rows[i].Work) * math.Exp(p.mean(of)(&p.at[i]))
		if have := m.Predict(cpu, &rows[i].Work).Us; math.Abs(math.Log(have/want)) > 0.04 {
			t.Errorf("%s %s is predicted %g us, by the process %g", rows[i].Task, rows[i].Shape, have, want)
		}
	}
}

// A machine that is slower at everything than its ceilings say is known from few measurements of one task.
func TestFewSamplesOfMachine(t *testing.T) {
	rows := lawRows("m", testCPU, testGPU, 0.02, 1)
	var all []Row
	for _, r := range lawRows("slow", Law{Floor: 2.4, StepUs: 1.4, BaseUs: 2}, testGPU, 0.02, 2) {
		if r.Device == "cpu" {
			all = append(all, r)
		}
	}
	predicted := func(known int) (worst float64) {
		n := 0
		m, err := Fit(append(slices.Clone(rows), filter(all, func(r *Row) bool {
			if r.Task != "vector.add" {
				return false
			}
			n++
			return n%3 == 0 && n/3 <= known
		})...))
		if err != nil {
			t.Fatal(err)
		}
		d, _ := m.Device("slow", "", "cpu")
		for i := range all {
			if r := &all[i]; r.Task == "reduce.sum" {
				worst = max(worst, math.Abs(math.Log(m.Predict(d, &r.Work).Us/r.Us)))
			}
		}
		return worst
	}
	if none, five := predicted(0), predicted(5); none < 0.5 || five > 0.4 {
		t.Errorf("another task is off by %.2f without measurements of the machine, by %.2f with five", none, five)
	}
}

// A median of few repeats is less certain than one of many that agree.
func TestChance(t *testing.T) {
	of := func(us ...float64) float64 {
		var rows []Row
		for _, v := range us {
			rows = append(rows, Row{Device: "cpu", Us: v, Work: Work{Task: "t"}})
		}
		m, err := Medians(rows)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Medians(m)
		if err != nil || again[0].chance != m[0].chance {
			t.Errorf("of a median: %g, %v; expected %g", again[0].chance, err, m[0].chance)
		}
		return m[0].chance
	}
	if one, agree, differ := of(10), of(10, 10.1, 9.9, 10, 10), of(10, 14, 7, 20, 10); !(agree < one && one < differ) || one != 0.1 {
		t.Errorf("one %g, five that agree %g, five that differ %g", one, agree, differ)
	}
}

// Points carry a function that bends: coinciding places are one point, and a place of no weight is none.
func TestGreedy(t *testing.T) {
	value := func(x float64) float64 { return math.Tanh(8 * (x - 3)) }
	var all []target
	for i := range 1000 {
		x := float64(i%250) / 50
		all = append(all, target{at: [features]float64{x}, value: value(x), weight: 1})
	}
	c := regress(all, Range{0, 4.98}, Range{})
	if len(c.points) < 8 || len(c.points) > maxPoints {
		t.Fatalf("%d points", len(c.points))
	}
	l := local{}
	l[Host] = c
	for i := range all {
		if got := l.at(Host, &all[i].at); math.Abs(got-all[i].value) > 0.15 {
			t.Errorf("at %g the points carry %.2f, expected %.2f", all[i].at[0], got, all[i].value)
		}
	}
	if n := len(greedy(slices.Repeat([]target{{value: 1, weight: 1}}, 9))); n != 1 {
		t.Errorf("%d points of one place", n)
	}
	if n := len(greedy([]target{{value: 1}})); n != 0 {
		t.Errorf("%d points of no weight", n)
	}
}

// A time by the law never falls when anything grows, since no coefficient is below 0.
func TestLawIsMonotone(t *testing.T) {
	m, err := Fit(lawRows("m", testCPU, testGPU, 0.3, 3))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range m.Devices {
		for _, c := range append(d.Tasks, Task{Cell: d.Other}) {
			for j, v := range c.Law.vector() {
				if !(v >= 0) {
					t.Errorf("%s %s: coefficient %d is %g", d.Device, c.Task, j, v)
				}
			}
		}
	}
}

// What was not measured is predicted from what was, and said to be outside.
func TestPredictOutside(t *testing.T) {
	m, err := Fit(lawRows("m", testCPU, testGPU, 0.02, 1))
	if err != nil {
		t.Fatal(err)
	}
	cpu, _ := m.Device("m", "", "cpu")
	inside := Work{Task: "vector.add", DType: "float32", Bytes: 12e6, Rows: 1, Steps: 1, FloorUs: 300}
	if e := m.Predict(cpu, &inside); !e.InDomain {
		t.Errorf("%+v", e)
	}
	for name, change := range map[string]func(*Work){
		"task":   func(w *Work) { w.Task = "sort" },
		"dtype":  func(w *Work) { w.DType = "bfloat16" },
		"larger": func(w *Work) { w.FloorUs *= 1e4 },
		"memory": func(w *Work) { w.Memory = Resident },
		"cold":   func(w *Work) { w.Cold = true },
		"steps":  func(w *Work) { w.Steps = 300 },
	} {
		w := inside
		change(&w)
		e, near := m.Predict(cpu, &w), m.Predict(cpu, &inside)
		if e.InDomain || !(e.Us > 0) || e.High/e.Low < near.High/near.Low {
			t.Errorf("another %s: %+v, inside %+v", name, e, near)
		}
	}
	other, known := m.Device("another machine", "", "cpu")
	if e := m.Predict(other, &inside); known || e.InDomain || math.Abs(e.Us/testCPU.Time(&inside)-1) > 0.2 {
		t.Errorf("another machine: %v, %+v", known, e)
	}
	if e := m.Predict(-1, &inside); e.InDomain || e.Us != inside.FloorUs {
		t.Errorf("no device: %+v", e)
	}
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 0, math.MaxFloat64} {
		w := Work{Task: "vector.add", DType: "float32", FLOPs: v, Bytes: v, BytesIn: v, BytesOut: v, Steps: v, Rows: v, FloorUs: v, Memory: Memory(200)}
		for d := range m.Devices {
			if e := m.Predict(d, &w); !(e.Us > 0) || math.IsInf(e.High, 0) || !(e.Low <= e.Us && e.Us <= e.High) {
				t.Errorf("work of %g: %+v", v, e)
			}
		}
	}
}

// Written and read again, a model predicts the same. Its data are named by a hash that repeats.
func TestWriteRead(t *testing.T) {
	rows := lawRows("m", testCPU, testGPU, 0.1, 2)
	m, err := Fit(rows)
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := m.Write(&file); err != nil {
		t.Fatal(err)
	}
	first := file.String()
	read, err := Read(&file)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		d, _ := m.Device(rows[i].Machine, rows[i].Key, rows[i].Device)
		if a, b := m.Predict(d, &rows[i].Work), read.Predict(d, &rows[i].Work); a != b {
			t.Fatalf("%+v became %+v", a, b)
		}
	}
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
	again, err := Fit(rows)
	if err != nil || again.SHA256 != m.SHA256 {
		t.Errorf("rows in another order: hash %s, %v; want %s", again.SHA256, err, m.SHA256)
	}
	rows[0].Us *= 100
	rows[0].Shape = "n=1"
	if other, err := Fit(rows); err != nil || other.SHA256 == m.SHA256 {
		t.Errorf("other data have the same hash (%v)", err)
	}
	for _, part := range []string{`"version":7`, `"data_sha256"`, `"spread"`, `"domain"`, `"machine":"m"`, `"key":"versions of m"`, `"n":12`} {
		if !strings.Contains(first, part) {
			t.Errorf("the file has no %s", part)
		}
	}
}

// Rows that no measurement gives are refused.
func TestFitBadRows(t *testing.T) {
	good := lawRows("m", testCPU, testGPU, 0.1, 2)
	for name, change := range map[string]func(*Row){
		"took no time": func(r *Row) { r.Us = 0 },
		"holds NaN":    func(r *Row) { r.Us = math.NaN() },
		"holds -1":     func(r *Row) { r.FloorUs = -1 },
		"holds +Inf":   func(r *Row) { r.Bytes = math.Inf(1) },
		"lacks a task": func(r *Row) { r.Task = "" },
		"Memory(9)":    func(r *Row) { r.Memory = 9 },
		"neither cpu":  func(r *Row) { r.Device = "tpu:0" },
	} {
		rows := append([]Row(nil), good...)
		change(&rows[5])
		if _, err := Fit(rows); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Fit(nil); err == nil {
		t.Error("nothing was fitted")
	}
}

// A prediction allocates nothing.
func TestPredictAllocatesNothing(t *testing.T) {
	rows := lawRows("m", testCPU, testGPU, 0.1, 2)
	m, err := Fit(rows)
	if err != nil {
		t.Fatal(err)
	}
	w, sum := rows[7].Work, 0.0
	if n := testing.AllocsPerRun(100, func() { sum += m.Predict(1, &w).Us }); n != 0 || sum == 0 {
		t.Errorf("%g allocations", n)
	}
}

func BenchmarkDecision(b *testing.B) {
	rows := lawRows("m", testCPU, testGPU, 0.1, 2)
	m, err := Fit(rows)
	if err != nil {
		b.Fatal(err)
	}
	cpu, _ := m.Device("m", "", "cpu")
	gpu, _ := m.Device("m", "", "cuda:0")
	gpuTimes := 0
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		w := &rows[i%len(rows)].Work
		if m.Predict(gpu, w).Us < m.Predict(cpu, w).Us {
			gpuTimes++
		}
	}
	_ = gpuTimes
}

// TestReadOtherVersion: a file of another version is told by its version, also if its fields had other types then.
func TestReadOtherVersion(t *testing.T) {
	for _, text := range []string{`{}`, `{"version":2,"devices":[]}`, `{"version":2,"devices":[{"tasks":{"a":{"points":[{"floor":1}]}}}]}`, `{"version":2,"devices":7}`} {
		if _, err := Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), "fit it again") {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := Read(strings.NewReader(`{"version":7,"devices":7}`)); err == nil || !strings.Contains(err.Error(), "not JSON of a model") {
		t.Errorf("wrong fields: %v", err)
	}
}

// FuzzRead: whatever the file, reading gives a model that predicts, or an error.
func FuzzRead(f *testing.F) {
	m, err := Fit(lawRows("m", testCPU, testGPU, 0.1, 2))
	if err != nil {
		f.Fatal(err)
	}
	var file bytes.Buffer
	if err := m.Write(&file); err != nil {
		f.Fatal(err)
	}
	good := file.String()
	f.Add([]byte(good))
	for _, change := range [][2]string{
		{`"version":7`, `"version":1`}, {`"floor":1`, `"floor":-1`}, {`"floor":1`, `"floor":1e300`}, {`"spread":0`, `"spread":1e9`}, {`"device":"cpu"`, `"device":"tpu"`},
		{`"weight":[`, `"weight":[1e300,`}, {`"weight":[`, `"weight":[1,`}, {`"memory":["`, `"memory":["disk","`}, {`"n":12`, `"n":-12`}, {`"min":`, `"min":1e17`},
		{`"steps":[`, `"steps":[1e9,`}, {`"memory":"host"`, `"memory":"disk"`}, {`"points":[`, `"points":[{"memory":"host","weight":[1]},`},
	} {
		changed := strings.Replace(good, change[0], change[1], 1)
		if changed == good {
			f.Fatalf("the file has no %s", change[0])
		}
		if _, err := Read(strings.NewReader(changed)); err == nil {
			f.Errorf("%s was taken", change[1])
		}
		f.Add([]byte(changed))
	}
	for _, n := range []int{0, 1, len(good) / 2, len(good) - 3} {
		if _, err := Read(strings.NewReader(good[:n])); err == nil {
			f.Errorf("%d of %d bytes were taken", n, len(good))
		}
		f.Add([]byte(good[:n]))
	}
	if _, err := Read(strings.NewReader(good + "{}")); err == nil {
		f.Error("a file with something behind the model was taken")
	}
	w := Work{Task: "vector.add", DType: "float32", Bytes: 1e6, Rows: 1, Steps: 1, FloorUs: 3}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		for d := -1; d <= len(m.Devices); d++ {
			if e := m.Predict(d, &w); !(e.Us > 0 && e.Low <= e.Us && e.Us <= e.High) || math.IsInf(e.High, 0) {
				t.Errorf("%+v", e)
			}
		}
	})
}

// The few works to measure are spread over what works differ in, each task has its number, and more of them go on from fewer.
func TestFew(t *testing.T) {
	var works []Work
	for _, task := range []string{"a", "b"} {
		for k := range 24 {
			n := math.Exp2(float64(k))
			works = append(works, Work{Task: task, DType: "float32", FLOPs: n, Bytes: 8 * n, FloorUs: n / 1e3, Steps: 1, Rows: 1, Threads: 4})
		}
	}
	got := Few("cpu", works, 3)
	count, least, most := map[string]int{}, map[string]float64{"a": 99, "b": 99}, map[string]float64{}
	for _, i := range got {
		task, size := works[i].Task, math.Log2(works[i].FLOPs)
		count[task]++
		least[task], most[task] = min(least[task], size), max(most[task], size)
	}
	for _, task := range []string{"a", "b"} {
		if count[task] != 3 || most[task]-least[task] < 10 {
			t.Errorf("of %s %d works from 2^%g to 2^%g; expected 3, far from each other", task, count[task], least[task], most[task])
		}
	}
	if all := Few("cpu", works, 100); len(all) != len(works) || !slices.Equal(all[:2], got[:2]) {
		t.Errorf("%d of %d works, first %v and %v", len(all), len(works), all[:2], got[:2])
	}
	if none := Few("cpu", nil, 3); len(none) != 0 {
		t.Errorf("of no works: %v", none)
	}
}
