package learn

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unsafe"

	"gpt2scope/internal/chart"
)

var lesson15 = Lesson{
	Number: 15,
	Claim:  "small inputs run faster on the CPU: choose the device by a threshold on the size",
	GPU:    &Experiment{Run: onGPU(runThreshold), Judge: judgeThreshold, Picture: drawThreshold},
	Why: `For one task, with its data always in the same place and the GPU always free, the time of each device is
nearly a straight line over the size. The lines cross once, and that size is the threshold. But the crossing moves. If
the data are on the GPU already, the GPU needs no transfer, and the CPU does. If other work is queued, the GPU begins
after it. No single size is right for all of these, and the best compromise loses in most of them. A model instead
predicts the time of both devices from what is known before the run, the size, the place of the data and the queue,
and takes the smaller. It needs a few coefficients for each device, fitted once, and evaluating it costs less than a
launch.`,
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

const (
	queuedUs        = 500.0 // of the work that a busy GPU has before it
	thresholdRounds = 32    // of arithmetic on each number
)

func runThreshold(g *gpu) {
	work := g.kernels("work.cu", "work")[0]
	spin := g.spin()
	most := g.elements(g.pick(1<<17, 1<<10), 4)
	b, host := g.buffer(int64(4*most)), g.host(int64(4*most))
	numbers := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(host.Bytes()))), most)
	toDevice := func(n int) { check(g.Stream.CopyToDevice(b, 0, host, 0, int64(4*n))) }
	toHost := func(n int) { check(g.Stream.CopyToHost(host, 0, b, 0, int64(4*n))) }
	onGPU := func(p place, n int) {
		if !p.resident() {
			toDevice(n)
		}
		g.launch(work, min(8*g.Device.Info().Processors, (n+255)/256), 256, b, int32(n), int32(thresholdRounds))
		if !p.resident() {
			toHost(n)
		}
		g.wait()
	}
	onCPU := func(p place, n int) {
		if p.resident() {
			toHost(n)
			g.wait()
		}
		for i, v := range numbers[:n] {
			for range thresholdRounds {
				v = v*0.999 + 0.5
			}
			numbers[i] = v
		}
		if p.resident() {
			toDevice(n)
			g.wait()
		}
	}
	g.add("all", "threads", 0, 1)
	for n := 1 << 6; n <= most; n *= 2 {
		for p := range place(len(thresholdCases)) {
			on := func(quantity string, run func(p place, n int)) way {
				return way{of: p.String(), quantity: quantity, x: float64(n), run: func() float64 {
					if p.busy() {
						spin(queuedUs)
					}
					t := timed(func() { run(p, n) })
					g.wait()
					return t
				}}
			}
			g.inTurns(g.pick(10, 4), on("cpu_us", onCPU), on("gpu_us", onGPU))
		}
	}
}

// deviceTimes is what a task takes on each device.
type deviceTimes struct{ cpu, gpu float64 }

// choice is one task of a size in a place. The repeats of its times are split: those with even numbers teach, those
// with odd numbers grade.
type choice struct {
	place                     place
	n                         float64
	taught, graded, predicted deviceTimes
}

func choices(d Data) (all []choice) {
	half := func(p place, n float64, odd int) deviceTimes {
		of := func(quantity string) float64 {
			var some []float64
			for i, v := range d.at(p.String(), quantity, n) {
				if i%2 == odd {
					some = append(some, v)
				}
			}
			return median(some)
		}
		return deviceTimes{of("cpu_us"), of("gpu_us")}
	}
	for p := range place(len(thresholdCases)) {
		for _, n := range d.xs(p.String(), "gpu_us") {
			c := choice{place: p, n: n, taught: half(p, n, 0), graded: half(p, n, 1)}
			if c.taught.cpu > 0 && c.taught.gpu > 0 && c.graded.cpu > 0 && c.graded.gpu > 0 {
				all = append(all, c)
			}
		}
	}
	return all
}

// predictTimes fits a law, latency and time per number, to every second size of each device and place of the data on a
// free GPU, and fills the predictions of all sizes and places in: on a busy GPU the work waits for what is queued, and
// so do copies of data that lie there.
func predictTimes(all []choice) bool {
	for i, c := range all {
		var sizes, cpu, gpu []float64
		seen := 0
		for _, o := range all {
			if !o.place.busy() && o.place.resident() == c.place.resident() {
				if seen++; seen%2 == 1 {
					sizes, cpu, gpu = append(sizes, o.n), append(cpu, o.taught.cpu), append(gpu, o.taught.gpu)
				}
			}
		}
		onCPU, off := fitLaw(sizes, cpu)
		onGPU, off2 := fitLaw(sizes, gpu)
		if math.IsInf(off+off2, 0) {
			return false
		}
		p := deviceTimes{onCPU.at(c.n), onGPU.at(c.n)}
		if c.place.busy() {
			p.gpu += queuedUs
			if c.place.resident() {
				p.cpu += queuedUs
			}
		}
		all[i].predicted = p
	}
	return true
}

// lost is the mean time that choices lose against the better device, in percent of its time.
func lost(all []choice, of func(c choice) deviceTimes, onGPU func(c choice) bool) float64 {
	sum := 0.0
	for _, c := range all {
		t := of(c)
		took := t.cpu
		if onGPU(c) {
			took = t.gpu
		}
		sum += 100 * (took/min(t.cpu, t.gpu) - 1)
	}
	return sum / float64(len(all))
}

func taught(c choice) deviceTimes { return c.taught }
func graded(c choice) deviceTimes { return c.graded }

// bestThreshold is the size from which on the GPU should run, by what was taught, and what it loses when graded.
func bestThreshold(all []choice) (threshold, loses float64) {
	from := func(size float64) func(c choice) bool { return func(c choice) bool { return c.n >= size } }
	best := math.Inf(1)
	for _, c := range append([]choice{{n: math.Inf(1)}}, all...) {
		if l := lost(all, taught, from(c.n)); l < best {
			best, threshold = l, c.n
		}
	}
	return threshold, lost(all, graded, from(threshold))
}

func judgeThreshold(d Data) Finding {
	all := choices(d)
	var alone []string
	var f Finding
	worst := 0.0
	for p := range place(len(thresholdCases)) {
		of := slices.DeleteFunc(slices.Clone(all), func(c choice) bool { return c.place != p })
		if len(of) < 4 {
			return undecided(fmt.Sprintf("%s: fewer than four sizes were measured.", p))
		}
		t, l := bestThreshold(of)
		worst = max(worst, l)
		if math.IsInf(t, 0) {
			alone = append(alone, p.String())
		} else {
			name := "threshold: " + p.String()
			if t == of[0].n {
				name += " (the smallest measured)"
			}
			f.Figures = append(f.Figures, exact(name, "numbers", t))
		}
	}
	if !predictTimes(all) {
		return undecided("No law fits these data.")
	}
	_, mixed := bestThreshold(all)
	model := lost(all, graded, func(c choice) bool { return c.predicted.gpu < c.predicted.cpu })
	f.Figures = append(f.Figures,
		exact("lost with the best threshold for each of these", "%", worst),
		exact("lost with the best single threshold", "%", mixed),
		exact("lost with a model of both devices", "%", model))
	f.Text = fmt.Sprintf("The task is %d multiply-adds on each number, by a plain loop in one thread of the CPU, so that "+
		"the thresholds are low. They move with the place of the data and the queue. Lost is time against the better device, on average over %d tasks; the model is fitted "+
		"to every second size on a free GPU.", thresholdRounds, len(all))
	if len(alone) > 0 {
		f.Text += fmt.Sprintf(" The GPU is never faster: %s.", strings.Join(alone, "; "))
	}
	refuted := mixed > 10 && model < mixed/2
	return f.decide(
		rule{HalfTrue, refuted && worst < 5, "Half true: a threshold is right for one place and one queue only."},
		rule{Refuted, refuted, ""},
		rule{Shown, mixed <= 5, ""})
}

func drawThreshold(d Data) chart.Picture {
	var all []chart.Series
	for _, of := range thresholdCases {
		all = append(all, d.curve(of, "gpu_us", func(x float64) float64 {
			return median(d.at(of, "gpu_us", x)) / median(d.at(of, "cpu_us", x))
		}))
	}
	return curves("Time on the GPU against the CPU: below 1 the GPU is faster", log("numbers"), log("GPU / CPU"), all...)
}
