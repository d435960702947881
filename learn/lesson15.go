package learn

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unsafe"

	"gpt2scope/internal/chart"
)

var lesson15 = Lesson{
	Number: 15,
	Claim:  "small inputs run faster on the CPU: choose the device by a threshold on the size",
	GPU: &Experiment{Run: onGPU(runThreshold), Judge: judgeThreshold, Picture: drawThreshold,
		Sources: []Source{workSource, spinSource}},
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
var thresholdCases = []string{"data on the host, GPU free", "data on the GPU, GPU free", "data on the host, GPU busy", "data on the GPU, GPU busy"}

func (p place) String() string { return thresholdCases[p] }

// place is an index of thresholdCases.
type place int

func (p place) resident() bool { return p%2 == 1 }
func (p place) busy() bool     { return p >= 2 }

const (
	queuedUs        = 500.0 // of the work that a busy GPU has before it
	thresholdRounds = 32    // of arithmetic on each number
)

func runThreshold(ctx context.Context, e *Env, g *gpu) (d Data, err error) {
	kernels := g.kernels(workSource, "work")
	spin := g.spin()
	most := g.elements(e.pick(1<<17, 1<<10), 4)
	b := g.buffers(1, int64(4*most))
	host := g.host(int64(4 * most))
	if g.err != nil {
		return nil, g.err
	}
	numbers := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(host.Bytes()))), most)
	blocks := 8 * g.Device.Info().Processors
	toDevice := func(n int) error { return g.Stream.CopyToDevice(b[0], 0, host, 0, int64(4*n)) }
	toHost := func(n int) error { return g.Stream.CopyToHost(host, 0, b[0], 0, int64(4*n)) }
	onGPU := func(p place, n int) error {
		run := func() error {
			return kernels[0].Launch(g.Stream, line(min(blocks, (n+255)/256), 256), b[0], int32(n), int32(thresholdRounds))
		}
		if p.resident() {
			return errors.Join(run(), g.Stream.Synchronize())
		}
		return errors.Join(toDevice(n), run(), toHost(n), g.Stream.Synchronize())
	}
	onCPU := func(p place, n int) error {
		if p.resident() {
			if err := errors.Join(toHost(n), g.Stream.Synchronize()); err != nil {
				return err
			}
		}
		for i, v := range numbers[:n] {
			for range thresholdRounds {
				v = v*0.999 + 0.5
			}
			numbers[i] = v
		}
		if p.resident() {
			return errors.Join(toDevice(n), g.Stream.Synchronize())
		}
		return nil
	}
	ways := []string{"cpu", "gpu"}
	d.add("all", "threads", 0, 1)
	for n := 1 << 6; n <= most; n *= 2 {
		for p := range place(len(thresholdCases)) {
			var turns Data
			err := inTurns(ctx, &turns, ways, e.pick(10, 4), func(i int) (float64, error) {
				if p.busy() {
					if err := spin(queuedUs); err != nil {
						return 0, err
					}
				}
				start := time.Now()
				do := onCPU
				if i == 1 {
					do = onGPU
				}
				if err := do(p, n); err != nil {
					return 0, err
				}
				t := us(time.Since(start))
				return t, g.Stream.Synchronize()
			})
			if err != nil {
				return nil, err
			}
			for _, t := range turns {
				d.add(p.String(), t.Case+"_us", float64(n), t.Value)
			}
		}
	}
	return d, nil
}

// choice is one task of a size in a place: what each device takes, by the measurements that grade, and by those that
// teach.
type choice struct {
	place              place
	n                  float64
	cpu, gpu           float64 // graded
	seenCPU            float64 // taught
	seenGPU            float64
	modelCPU, modelGPU float64 // predicted
}

// choices splits the repeats of each size in two halves: those with even numbers teach, those with odd numbers grade.
func choices(d Data) (all []choice) {
	half := func(values []float64, odd int) float64 {
		var some []float64
		for i, v := range values {
			if i%2 == odd {
				some = append(some, v)
			}
		}
		return median(some)
	}
	for p := range place(len(thresholdCases)) {
		for _, n := range d.xs(p.String(), "gpu_us") {
			cpu, gpu := d.at(p.String(), "cpu_us", n), d.at(p.String(), "gpu_us", n)
			if c := (choice{place: p, n: n, cpu: half(cpu, 1), gpu: half(gpu, 1), seenCPU: half(cpu, 0), seenGPU: half(gpu, 0)}); c.cpu > 0 && c.gpu > 0 && c.seenCPU > 0 && c.seenGPU > 0 {
				all = append(all, c)
			}
		}
	}
	return all
}

// predictTimes fits a law, latency and time per number, to every second size of each device and place of the data on a free
// GPU, and fills the predictions of all sizes and places in: on a busy GPU the work waits for what is queued, and so do copies
// of data that lie there.
func predictTimes(all []choice) bool {
	for i, c := range all {
		var sizes, cpu, gpu []float64
		seen := 0
		for _, o := range all {
			if !o.place.busy() && o.place.resident() == c.place.resident() {
				if seen++; seen%2 == 1 {
					sizes, cpu, gpu = append(sizes, o.n), append(cpu, o.seenCPU), append(gpu, o.seenGPU)
				}
			}
		}
		onCPU, off := fitLaw(sizes, cpu)
		onGPU, off2 := fitLaw(sizes, gpu)
		if math.IsInf(off+off2, 0) {
			return false
		}
		all[i].modelCPU, all[i].modelGPU = onCPU.at(c.n), onGPU.at(c.n)
		if c.place.busy() {
			all[i].modelGPU += queuedUs
		}
		if c.place.busy() && c.place.resident() {
			all[i].modelCPU += queuedUs
		}
	}
	return true
}

// lost is the mean time that choices lose against the better device, in percent of its time.
func lost(all []choice, onGPU func(c choice) bool) float64 {
	sum := 0.0
	for _, c := range all {
		t := c.cpu
		if onGPU(c) {
			t = c.gpu
		}
		sum += 100 * (t/min(c.cpu, c.gpu) - 1)
	}
	return sum / float64(len(all))
}

// bestThreshold is the size from which on the GPU should run, by what was taught.
func bestThreshold(all []choice) (threshold float64) {
	best := math.Inf(1)
	sizes := []float64{math.Inf(1)}
	for _, c := range all {
		sizes = append(sizes, c.n)
	}
	for _, size := range sizes {
		sum := 0.0
		for _, c := range all {
			t := c.seenCPU
			if c.n >= size {
				t = c.seenGPU
			}
			sum += t / min(c.seenCPU, c.seenGPU)
		}
		if sum < best {
			best, threshold = sum, size
		}
	}
	return threshold
}

func judgeThreshold(d Data) Finding {
	all := choices(d)
	byThreshold := func(of []choice) float64 {
		t := bestThreshold(of)
		return lost(of, func(c choice) bool { return c.n >= t })
	}
	var alone []string
	var f Finding
	var thresholds []Figure
	worst := 0.0
	for p := range place(len(thresholdCases)) {
		of := slices.DeleteFunc(slices.Clone(all), func(c choice) bool { return c.place != p })
		if len(of) < 4 {
			return undecided(fmt.Sprintf("%s: fewer than four sizes were measured.", p))
		}
		l := byThreshold(of)
		worst = max(worst, l)
		if t := bestThreshold(of); math.IsInf(t, 0) {
			alone = append(alone, p.String())
		} else {
			thresholds = append(thresholds, exact("threshold: "+p.String(), "numbers", t))
		}
	}
	if !predictTimes(all) {
		return undecided("No law fits these data.")
	}
	mixed, model := byThreshold(all), lost(all, func(c choice) bool { return c.modelGPU < c.modelCPU })
	f.Figures = append(thresholds, exact("lost with the best threshold for each of these", "%", worst), exact("lost with the best single threshold", "%", mixed), exact("lost with a model of both devices", "%", model))
	threads := 1
	if n := d.values("all", "threads"); len(n) > 0 {
		threads = int(n[0])
	}
	f.Text = fmt.Sprintf("A threshold is the size from which the GPU beats %s of the CPU; it moves with the place of the data and the queue. Lost is time against the better device, on average over %d tasks; the model is fitted to every second size on a free GPU.", countOf(threads, "thread"), len(all))
	if len(alone) > 0 {
		f.Text += fmt.Sprintf(" The GPU is never faster: %s.", strings.Join(alone, "; "))
	}
	switch {
	case mixed > 10 && model < mixed/2:
		f.Verdict = Refuted
		if worst < 5 {
			f.Text += " The claim is half true: one threshold is right for one place and one queue only."
		}
	case mixed <= 5:
		f.Verdict = Shown
	default:
		f.Verdict = Unknown
	}
	return f
}

func drawThreshold(d Data) chart.Picture {
	var all []chart.Series
	for _, of := range thresholdCases {
		all = append(all, d.curve(of, "gpu_us", func(x float64) float64 { return median(d.at(of, "gpu_us", x)) / median(d.at(of, "cpu_us", x)) }))
	}
	return curves("Time on the GPU against the CPU: below 1 the GPU is faster", log("numbers"), log("GPU / CPU"), all...)
}
