package predict

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gpt2scope/internal/require"
)

// truth is the law of work in tests.
var truth = Law{Floor: 1.4, StepUs: 2.5, BaseUs: 6,
	PageableIn: Transfer{9, 210}, PageableOut: Transfer{14, 320}, PinnedIn: Transfer{5, 40}, PinnedOut: Transfer{7, 75}}

// rowsOf makes rows of a task whose times follow a law, each times a factor.
func rowsOf(machine, device, task string, law Law, n int, factor func(*Work) float64) (rows []Row) {
	memories := []Memory{Pageable, Pinned, Resident}
	if device == "cpu" {
		memories = []Memory{Host}
	}
	for i := range n {
		size := math.Exp2(10 + 16*float64(i)/float64(n))
		for _, memory := range memories {
			w := Work{Task: task, DType: "float32", FLOPs: 50 * size, Bytes: 8 * size, Steps: float64(1 + i%7*3),
				Rows: float64(1 + i%16), FloorUs: size / 200, Memory: memory}
			if memory == Pageable || memory == Pinned {
				w.BytesIn, w.BytesOut = size*float64(1+i%5), size*float64(i%3)
			}
			r := Row{Machine: machine, Processor: device + " of " + machine, Device: device, Shape: fmt.Sprint(i), Work: w}
			r.Us = timeOf(law, &w) * factor(&w)
			rows = append(rows, r)
		}
	}
	return rows
}

func timeOf(law Law, w *Work) float64 {
	in, run, out := law.Time(w)
	return in + run + out
}

func exact(*Work) float64 { return 1 }

// lawOfRows fits a law to rows.
func lawOfRows(t *testing.T, rows []Row) Law {
	t.Helper()
	law := require.Value(fitLaw(equations(rows, byTask), Law{Floor: 1.3}, floorPull))(t)
	return law
}

// nearLaw compares coefficients, each within a part.
func nearLaw(t *testing.T, law, want Law, part float64) {
	t.Helper()
	w := want.coefficients()
	for i, v := range law.coefficients() {
		if math.Abs(*v-*w[i]) > part**w[i]+1e-9 {
			t.Errorf("coefficient %d is %g; expected %g within %g %%", i, *v, *w[i], 100*part)
		}
	}
}

// A law is found again from times that follow it: each direction and each memory has its own transfers.
func TestFitLaw(t *testing.T) {
	nearLaw(t, lawOfRows(t, rowsOf("m", "cuda:0", "a", truth, 60, exact)), truth, 0.02)
}

// Measured copies tell a latency in from one out where all works copy both, and alike.
func TestFitLawCopies(t *testing.T) {
	rows := rowsOf("m", "cuda:0", "a", truth, 60, exact)
	for i := range rows {
		r := &rows[i]
		r.BytesOut = r.BytesIn
		r.Us = timeOf(truth, &r.Work)
		in, out := truth.PageableIn, truth.PageableOut
		if r.Memory == Pinned {
			in, out = truth.PinnedIn, truth.PinnedOut
		}
		if r.BytesIn > 0 {
			r.H2DUs, r.D2HUs = in.LatencyUs+in.UsPerMiB*r.BytesIn/mebibyte, out.LatencyUs+out.UsPerMiB*r.BytesOut/mebibyte
		}
	}
	nearLaw(t, lawOfRows(t, rows), truth, 0.02)
}

// One time of ten that is eight times too long moves a law little.
func TestFitLawOutliers(t *testing.T) {
	i := 0
	law := lawOfRows(t, rowsOf("m", "cpu", "a", truth, 200, func(*Work) float64 {
		if i++; i%10 == 0 {
			return 8
		}
		return 1
	}))
	if math.Abs(law.Floor/truth.Floor-1) > 0.05 || math.Abs(law.StepUs/truth.StepUs-1) > 0.15 {
		t.Errorf("%+v; expected %+v", law, truth)
	}
}

// What rows say nothing about is the law's that it is pulled to, and two rows say less than twenty.
func TestFitLawPull(t *testing.T) {
	before, other := truth, truth
	before.Floor, other.Floor = 4, 2
	var off [2]float64
	for i, n := range []int{1, 20} {
		rows := rowsOf("m", "cuda:0", "a", other, n, exact)
		rows = slices.DeleteFunc(rows, func(r Row) bool { return r.Memory != Resident })
		law := require.Value(fitLaw(equations(rows, byTask), before, lawPull))(t)
		if law.PinnedIn != before.PinnedIn {
			t.Errorf("coefficients without data changed: %+v", law)
		}
		off[i] = math.Abs(law.Floor - other.Floor)
	}
	if !(off[0] > 5*off[1] && off[1] < 0.1) {
		t.Errorf("floors are off by %v of one row and of twenty", off)
	}
}

// nonNegative finds x that fulfils the conditions of Karush, Kuhn and Tucker.
func TestNonNegative(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var g [terms][terms]float64
		var r [terms]float64
		for range 6 {
			var row [4]float64
			b := random.NormFloat64()
			for i := range row {
				row[i] = random.NormFloat64()
			}
			for i := range row {
				for j := range row {
					g[i][j] += row[i] * row[j]
				}
				r[i] += row[i] * b
			}
		}
		x := require.Value(nonNegative(&g, &r, [terms]float64{}, []int{0, 1, 2, 3}))(t)
		for i, v := range x {
			gradient := -r[i]
			for j := range 4 {
				gradient += g[i][j] * x[j]
			}
			if v < 0 || v > 0 && math.Abs(gradient) > 1e-4 || v == 0 && i < 4 && gradient < -1e-4 {
				t.Fatalf("x[%d] is %g with gradient %g", i, v, gradient)
			}
		}
	}
}

func mustFit(t testing.TB, rows []Row) *Model {
	t.Helper()
	m := require.Value(Fit(t.Context(), rows))(t)
	return m
}

// fewer keeps every k-th shape, and returns the rest.
func fewer(rows []Row, k int) (some, rest []Row) {
	for _, r := range rows {
		var i int
		if fmt.Sscan(r.Shape, &i); i%k == 0 {
			some = append(some, r)
		} else {
			rest = append(rest, r)
		}
	}
	return some, rest
}

// medianError returns the median error, and the part of times inside the interval.
func medianError(m *Model, rows []Row) (median, within float64) {
	var errors []float64
	for i := range rows {
		r := &rows[i]
		d, _ := m.Device(r)
		e := m.Predict(d, &r.Work)
		errors = append(errors, math.Abs(math.Log(e.Us/r.Us)))
		if e.Low <= r.Us && r.Us <= e.High {
			within++
		}
	}
	slices.Sort(errors)
	return errors[len(errors)/2], within / float64(len(rows))
}

// What no law follows, a step at so many rows and a bend in the floor, is learned from neighbours.
func TestNeighbours(t *testing.T) {
	step := func(w *Work) float64 {
		f := 1 + 0.5*math.Sin(math.Log2(w.FloorUs)/2)
		if w.Rows > 8 {
			f *= 2.5
		}
		return f
	}
	some, rest := fewer(rowsOf("m", "cpu", "a", truth, 240, step), 3)
	m := mustFit(t, some)
	if median, _ := medianError(m, rest); median > 0.16 {
		t.Errorf("the median error is %.0f %%", 100*median)
	}
	clear(m.near)
	if median, _ := medianError(m, rest); median < 0.2 {
		t.Errorf("the median error is %.0f %% without neighbours: the test says nothing", 100*median)
	}
}

// Intervals hold nine of ten times that the model has not seen.
func TestIntervals(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	noise := func(*Work) float64 { return math.Exp(0.2 * random.NormFloat64()) }
	some, rest := fewer(rowsOf("m", "cuda:0", "a", truth, 160, noise), 2)
	if _, within := medianError(mustFit(t, some), rest); within < 0.84 || within > 0.97 {
		t.Errorf("%.0f %% of the times lie in the intervals", 100*within)
	}
}

func TestSpread(t *testing.T) {
	var errors []float64
	for i := range 99 {
		errors = append(errors, float64(99-i)/100)
	}
	if s := spread(errors, 5); s != 0.9 { // the 90th of 99
		t.Errorf("spread of 0.01 to 0.99 is %g; expected 0.9", s)
	}
	if s := spread([]float64{0.1, 0.3}, 0.7); s != 0.7 {
		t.Errorf("spread of two errors is %g; expected that of the level before, 0.7", s)
	}
}

// A task, a type, a place of data or a size that was not measured is not in the domain, and its interval is no
// narrower.
func TestDomain(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	noise := func(*Work) float64 { return math.Exp(0.1 * random.NormFloat64()) }
	rows := append(rowsOf("m", "cuda:0", "a", truth, 40, noise), rowsOf("m", "cuda:0", "b", truth, 40, noise)...)
	m := mustFit(t, slices.DeleteFunc(rows, func(r Row) bool { return r.Task == "b" && r.Memory == Resident }))
	d, known := m.Device(&Row{Machine: "m", Device: "cuda:0"})
	inside := rows[30].Work
	width := func(e Estimate) float64 { return e.High / e.Low }
	was := m.Predict(d, &inside)
	if !known || !was.InDomain || !(width(was) > 1.1) {
		t.Fatalf("%v, %+v", known, was)
	}
	for name, change := range map[string]func(*Work){
		"task": func(w *Work) { w.Task = "c" }, "type": func(w *Work) { w.DType = "bfloat16" },
		"memory": func(w *Work) { w.Task, w.Memory, w.BytesIn, w.BytesOut = "b", Resident, 0, 0 },
		"host":   func(w *Work) { w.Memory = Host }, "floor": func(w *Work) { w.FloorUs *= 1e4 },
		"steps": func(w *Work) { w.Steps = 1000 }, "rows": func(w *Work) { w.Rows = 1000 },
	} {
		w := inside
		change(&w)
		e := m.Predict(d, &w)
		if e.InDomain || width(e) < width(was) || !(e.Low <= e.Us && e.Us <= e.High && e.Us > 0) {
			t.Errorf("changed %s: %+v, before %+v", name, e, was)
		}
	}
}

// A device is found by its machine, by its processor and threads, by its kind. Of a kind without measurements the floor
// is predicted.
func TestDevice(t *testing.T) {
	var rows []Row
	for i, is := range []struct {
		processor string
		threads   float64
	}{{"P", 2}, {"P", 8}, {"Q", 2}} {
		law := truth
		law.Floor = float64(2 + 3*i)
		own := rowsOf(fmt.Sprint("m", i), "cpu", "a", law, 20, exact)
		for j := range own {
			own[j].Processor, own[j].Threads = is.processor, is.threads
		}
		rows = append(rows, own...)
	}
	m := mustFit(t, rows)
	for _, c := range []struct {
		machine, processor string
		threads            float64
		device             string
		known              bool
		is                 string // machine
	}{
		{"m1", "", 0, "cpu", true, "m1"}, {"new", "Q", 2, "cpu", true, "m2"}, {"new", "P", 4, "cpu", false, ""},
		{"new", "R", 2, "cpu", false, ""}, {"new", "", 2, "cpu", false, ""}, {"m1", "P", 8, "cuda:0", false, ""},
	} {
		r := Row{Machine: c.machine, Processor: c.processor, Device: c.device, Work: Work{Threads: c.threads}}
		i, known := m.Device(&r)
		if is := m.devices[i]; is.Machine != c.is || known != c.known || Kind(is.Device) != Kind(c.device) {
			t.Errorf("%+v: %q, %v", c, is.Machine, known)
		}
	}
	w := Work{FloorUs: 7}
	if e := m.Predict(1, &w); e.Us != 7 || e.InDomain || e.High != math.MaxFloat64 {
		t.Errorf("a GPU: %+v", e)
	}
}

// A copy takes its part of a predicted time.
func TestParts(t *testing.T) {
	m := mustFit(t, rowsOf("m", "cuda:0", "a", truth, 60, exact))
	w := Work{Task: "a", DType: "float32", Steps: 3, Rows: 2, FloorUs: 100, Memory: Pageable, BytesIn: 1e6, BytesOut: 2e6}
	in, run, out := truth.Time(&w)
	d, _ := m.Device(&Row{Machine: "m", Device: "cuda:0"})
	e := m.Predict(d, &w)
	for _, c := range [][2]float64{{e.InUs, in}, {e.OutUs, out}, {e.Us - e.InUs - e.OutUs, run}} {
		if math.Abs(c[0]/c[1]-1) > 0.1 {
			t.Errorf("%+v; expected %g, %g and %g us", e, in, run, out)
		}
	}
}

// A model that is written and read predicts the same.
func TestWriteRead(t *testing.T) {
	rows := append(rowsOf("m", "cuda:0", "a", truth, 30, exact), rowsOf("m", "cpu", "b", truth, 30, exact)...)
	m := mustFit(t, rows)
	var b bytes.Buffer
	require.NoError(t, m.Write(&b))
	file := b.String()
	again := require.Value(Read(&b))(t)
	for i := range rows {
		d, _ := m.Device(&rows[i])
		if e, f := m.Predict(d, &rows[i].Work), again.Predict(d, &rows[i].Work); e != f {
			t.Fatalf("%+v and %+v", e, f)
		}
	}
	for name, c := range map[string]struct{ text, says string }{
		"empty": {"", "not JSON"}, "cut": {file[:len(file)/2], "cut off"}, "twice": {file + file, "not JSON"},
		"version":  {strings.Replace(file, `"version":9`, `"version":8`, 1), "version 8"},
		"types":    {`{"version":9,"laws":7}`, "cannot be read"},
		"negative": {strings.Replace(file, `"step_us":`, `"step_us":-`, 1), "no fit gives"},
		"spread":   {strings.Replace(file, `"spread":`, `"spread":-`, 1), "no fit gives"},
		"floor":    {strings.Replace(file, `"floor_us":`, `"floor_us":-`, 1), "measurement 1"},
		"memory":   {strings.Replace(file, `"memory":"host"`, `"memory":"disk"`, 1), "disk"},
		"device":   {strings.ReplaceAll(file, `"device":"cpu"`, `"device":"tpu"`), "tpu"},
		"law":      {strings.Replace(file, `"task":"b"`, `"task":"x"`, 1), "no law"},
		"none":     {`{"version":9}`, "0 shapes"},
	} {
		if _, err := Read(strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; expected %q", name, err, c.says)
		}
	}
}

func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	require.NoError(f, mustFit(f, rowsOf("m", "cpu", "b", truth, 8, exact)).Write(&b))
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		for d := range m.devices {
			works := []Work{{}, {Task: "b", DType: "float32", FloorUs: 3}, {Memory: Pinned, BytesIn: 1e9, FloorUs: 1e17}}
			for _, w := range works {
				if e := m.Predict(d, &w); !(e.Us > 0 && e.Low <= e.Us && e.Us <= e.High) {
					t.Errorf("%+v", e)
				}
			}
		}
	})
}

// Repeats count by their median, and what no measurement gives is refused.
func TestMedians(t *testing.T) {
	r := rowsOf("m", "cpu", "a", truth, 1, exact)[0]
	var rows []Row
	for _, us := range []float64{100, 7, 9} {
		r.Us = us
		rows = append(rows, r)
	}
	r.Us, r.Cold = 1e6, true // a cold start does not count
	rows = append(rows, r)
	r.Cold = false
	if m, err := Medians(rows); err != nil || len(m) != 1 || m[0].Us != 9 {
		t.Errorf("%+v, %v", m, err)
	}
	for name, change := range map[string]func(*Row){
		"time": func(r *Row) { r.Us = math.NaN() }, "no time": func(r *Row) { r.Us = 0 },
		"task": func(r *Row) { r.Task = "" }, "machine": func(r *Row) { r.Machine = "" },
		"device": func(r *Row) { r.Device = "tpu" }, "floor": func(r *Row) { r.FloorUs = -1 },
		"memory": func(r *Row) { r.Memory = "disk" }, "copy": func(r *Row) { r.H2DUs = math.Inf(1) },
	} {
		bad := r
		change(&bad)
		if _, err := Fit(t.Context(), append(rows, bad)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := Fit(t.Context(), nil); err == nil {
		t.Error("a fit of nothing: no error")
	}
}

// A fit asks its context again and again.
func TestFitCancelled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	cancel(cause)
	if _, err := Fit(ctx, rowsOf("m", "cpu", "a", truth, 40, exact)); !errors.Is(err, cause) {
		t.Errorf("%v", err)
	}
}

// A device with many rows counts no more in the law of its kind than one with few.
func TestAlike(t *testing.T) {
	slow := truth
	slow.Floor = 1.3 * truth.Floor
	few := rowsOf("few", "cpu", "a", slow, 8, exact)
	even := lawOfRows(t, append(slices.Clone(few), rowsOf("many", "cpu", "a", truth, 8, exact)...))
	law := lawOfRows(t, append(few, rowsOf("many", "cpu", "a", truth, 400, exact)...))
	if math.Abs(law.Floor/even.Floor-1) > 0.03 {
		t.Errorf("the floor counts %.2f times with 400 rows of one device and 8 of the other, %.2f times with 8 of each",
			law.Floor, even.Floor)
	}
}
