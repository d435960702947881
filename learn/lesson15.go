package learn

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"gpt2scope/internal/chart"
	"gpt2scope/predict"
	"gpt2scope/tasks"
	"gpt2scope/tasks/samples"
)

var lesson15 = Lesson{
	Number: 15,
	Claim:  "small inputs run faster on the CPU: choose the device by a threshold on the size",
	CPU: &Experiment{Of: "From stored times of an NVIDIA H200 and 16 cores of a Xeon in the program ('infer tasks')",
		Run: storedProducts, Judge: judgeThreshold,
		Picture: curves("Time on the GPU against the CPU: below 1 the GPU is faster", log("rows"), log("GPU / CPU"),
			func(d Data) (all []chart.Series) {
				for _, of := range thresholdCases {
					all = append(all, d.curve(of, "gpu_us", func(x float64) float64 {
						return median(d.at(of, "gpu_us", x)) / median(d.at(of, "cpu_us", x))
					}))
				}
				return all
			})},
	Why: `For one task, with its data always in the same place and the GPU always free, the times of the two devices
cross once at most, and that size is the threshold. But the crossing moves. If the data are on the GPU already, the GPU needs no
transfer, and the CPU does, after the work that is queued there. If other work is queued, the GPU begins after it. No single size is right for all of these,
and a compromise loses in most. A model predicts the time of both devices from what is known
before, the size, the place of the data and the queue, and takes the smaller. Compare with the best that a CPU can do, all cores and vector instructions: against a loop in one thread any GPU
wins. 'infer tasks bench -o out' measures your own machine, 'infer tasks simulate out' judges it.`,
	GoOn: "infer tasks simulate",
}

// The cases of lesson 15: where the data are, and what the GPU does when the task comes.
var thresholdCases = []string{
	"data on the host, GPU free", "data on the GPU, GPU free", "data on the host, GPU busy", "data on the GPU, GPU busy",
}

// place is an index of thresholdCases.
type place int

func (p place) String() string { return thresholdCases[p] }
func (p place) resident() bool { return p%2 == 1 }
func (p place) busy() bool     { return p >= 2 }

// waits is how long the CPU and the GPU wait for the queue: the CPU for data that lie on a busy GPU.
func (p place) waits() deviceTimes {
	return [...]deviceTimes{{}, {}, {0, queuedUs}, {queuedUs, queuedUs}}[p]
}

const (
	queuedUs   = 500.0 // of the work that a busy GPU has before it
	mostSquare = 1024  // the largest product that lesson 15 looks at
)

// storedProducts are the times of square products in float32, by the tuned ways of both devices. A CPU whose data are on
// the GPU copies them both ways first; what waits for a busy GPU waits for its queue.
func storedProducts(l *lab) {
	times := map[int]*[4][]float64{} // by n: CPU, GPU with copies, GPU without, the copies
	for _, s := range must(samples.H200()) {
		n := must(tasks.ParseShape(s.Shape))[0].Value
		if s.Task != "matmul" || s.DType != tasks.Float32 || s.Cold || s.Variant != tasks.Tuned || n > mostSquare ||
			s.Shape != fmt.Sprintf("m=%d,n=%d,k=%d", n, n, n) {
			continue
		}
		if times[n] == nil {
			times[n] = new([4][]float64)
		}
		switch of := times[n]; {
		case s.Device == tasks.CPU:
			of[0] = append(of[0], s.Us)
		case s.Memory == predict.Pinned:
			of[1], of[3] = append(of[1], s.Us), append(of[3], s.H2DUs+s.D2HUs)
		case s.Memory == predict.Resident:
			of[2] = append(of[2], s.Us)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(times)) {
		of := times[n]
		for p := range place(len(thresholdCases)) {
			for i := range min(len(of[0]), len(of[1]), len(of[2])) {
				t := deviceTimes{of[0][i], of[1][i]}
				if p.resident() {
					t = deviceTimes{of[0][i] + of[3][i], of[2][i]}
				}
				for device, quantity := range []string{"cpu_us", "gpu_us"} {
					l.add(p.String(), quantity, float64(n), t[device]+p.waits()[device])
				}
			}
		}
	}
}

// deviceTimes is what a task takes on the CPU and on the GPU.
type deviceTimes [2]float64

// choice is one task of a size in a place.
type choice struct {
	place            place
	n                float64
	times, predicted deviceTimes
}

func choices(d Data) (all []choice) {
	for p := range place(len(thresholdCases)) {
		for _, n := range d.xs(p.String(), "gpu_us") {
			c := choice{place: p, n: n}
			for device, quantity := range []string{"cpu_us", "gpu_us"} {
				c.times[device] = median(d.at(p.String(), quantity, n))
			}
			if min(c.times[0], c.times[1]) > 0 { // no NaN
				all = append(all, c)
			}
		}
	}
	return all
}

// predictTimes fills in what a model knows that was taught every second size with a free GPU: between two sizes lines in
// logarithms; on a busy GPU the work waits for what is queued, and so do copies of data that lie there.
func predictTimes(all []choice) {
	for i, c := range all {
		var known []choice
		nth := 0
		for _, o := range all {
			if !o.place.busy() && o.place.resident() == c.place.resident() {
				if nth++; nth%2 == 1 {
					known = append(known, o)
				}
			}
		}
		at := 1
		for at < len(known)-1 && known[at].n < c.n {
			at++
		}
		a, b := known[at-1], known[at]
		share := 1.0
		if c.n <= b.n {
			share = math.Log(c.n/a.n) / math.Log(b.n/a.n)
		}
		waits := c.place.waits()
		for device := range waits {
			x, y := a.times[device], b.times[device]
			all[i].predicted[device] = x*math.Pow(y/x, share) + waits[device]
		}
	}
}

// lost is the mean time that choices lose against the better device, in percent of its time.
func lost(all []choice, onGPU func(c choice) bool) float64 {
	sum := 0.0
	for _, c := range all {
		t := c.times
		took := t[0]
		if onGPU(c) {
			took = t[1]
		}
		sum += 100 * (took/min(t[0], t[1]) - 1)
	}
	return sum / float64(len(all))
}

// bestThreshold is the size from which on the GPU should run, and what it loses.
func bestThreshold(all []choice) (threshold, loses float64) {
	loses = math.Inf(1)
	for _, at := range append([]choice{{n: math.Inf(1)}}, all...) {
		if l := lost(all, func(c choice) bool { return c.n >= at.n }); l < loses {
			threshold, loses = at.n, l
		}
	}
	return threshold, loses
}

func judgeThreshold(d Data) Finding {
	all := choices(d)
	var alone [2][]string // the places where the CPU, or the GPU, is faster at all sizes
	var f Finding
	worst := 0.0
	for p := range place(len(thresholdCases)) {
		of := slices.DeleteFunc(slices.Clone(all), func(c choice) bool { return c.place != p })
		if len(of) < 4 {
			return undecided(fmt.Sprintf("%s: fewer than four sizes were measured.", p))
		}
		t, l := bestThreshold(of)
		worst = max(worst, l)
		switch {
		case math.IsInf(t, 0):
			alone[0] = append(alone[0], p.String())
		case t == of[0].n:
			alone[1] = append(alone[1], p.String())
		default:
			f.Figures = append(f.Figures, exact("threshold: "+p.String(), "rows", t))
		}
	}
	predictTimes(all)
	_, mixed := bestThreshold(all)
	model := lost(all, func(c choice) bool { return c.predicted[1] < c.predicted[0] })
	f.Figures = append(f.Figures,
		exact("lost with the best threshold for each of these", "%", worst),
		exact("lost with the best single threshold", "%", mixed),
		exact("lost with a model of both devices", "%", model))
	f.Text = fmt.Sprintf("The task is the product of two square matrices in float32, by the tuned ways of both devices; a busy GPU has %.0f us "+
		"of work before it. The threshold moves with the place of the data and the queue. Lost is time against the better device, on average "+
		"over %d tasks; the model is fitted to every second size, on a free GPU.", queuedUs, len(all))
	for i, device := range []string{"CPU", "GPU"} {
		if alone[i] != nil {
			f.Text += fmt.Sprintf(" The %s is faster at all sizes with %s.", device, strings.Join(alone[i], "; with "))
		}
	}
	refuted := mixed > 10 && model < mixed/2
	return f.decide(
		rule{HalfTrue, refuted && worst < 5, "Half true: a threshold is right for one place and one queue only."},
		rule{Refuted, refuted, ""},
		rule{Shown, mixed <= 5, ""})
}
