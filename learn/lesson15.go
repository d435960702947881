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
		for p, place := range thresholdCases {
			for i := range min(len(of[0]), len(of[1]), len(of[2])) {
				resident, busy := p%2 == 1, p >= 2
				cpu, gpu := of[0][i], of[1][i]
				if resident {
					cpu, gpu = cpu+of[3][i], of[2][i]
				}
				if busy {
					gpu += queuedUs
				}
				if busy && resident { // the CPU waits for its data
					cpu += queuedUs
				}
				l.add(place, "cpu_us", float64(n), cpu)
				l.add(place, "gpu_us", float64(n), gpu)
			}
		}
	}
}

// choice is one task of a size in a place.
type choice struct {
	place       string
	n, cpu, gpu float64 // us
}

func choices(d Data) (all []choice) {
	for _, place := range thresholdCases {
		for _, n := range d.xs(place, "gpu_us") {
			c := choice{place, n, median(d.at(place, "cpu_us", n)), median(d.at(place, "gpu_us", n))}
			if min(c.cpu, c.gpu) > 0 { // no NaN
				all = append(all, c)
			}
		}
	}
	return all
}

// bestThreshold is the size from which on the GPU should run, and the mean time that it loses against the better device,
// in percent of its time.
func bestThreshold(all []choice) (threshold, loses float64) {
	loses = math.Inf(1)
	for _, at := range append([]choice{{n: math.Inf(1)}}, all...) {
		sum := 0.0
		for _, c := range all {
			took := c.cpu
			if c.n >= at.n {
				took = c.gpu
			}
			sum += 100 * (took/min(c.cpu, c.gpu) - 1)
		}
		if mean := sum / float64(len(all)); mean < loses {
			threshold, loses = at.n, mean
		}
	}
	return threshold, loses
}

func judgeThreshold(d Data) Finding {
	all := choices(d)
	var alone [2][]string // the places where no threshold does better than the CPU, or the GPU, alone
	var f Finding
	worst := 0.0
	for _, place := range thresholdCases {
		of := slices.DeleteFunc(slices.Clone(all), func(c choice) bool { return c.place != place })
		if len(of) < 4 {
			return undecided(fmt.Sprintf("%s: fewer than four sizes were measured.", place))
		}
		t, l := bestThreshold(of)
		worst = max(worst, l)
		switch {
		case math.IsInf(t, 0):
			alone[0] = append(alone[0], place)
		case t == of[0].n:
			alone[1] = append(alone[1], place)
		default:
			f.Figures = append(f.Figures, exact("threshold: "+place, "rows", t))
		}
	}
	_, mixed := bestThreshold(all)
	f.Figures = append(f.Figures,
		exact("lost with the best threshold for each of these", "%", worst),
		exact("lost with the best single threshold", "%", mixed))
	f.Text = fmt.Sprintf("The task is the product of two square matrices in float32, by the tuned ways of both devices; a busy GPU has %.0f us "+
		"of work before it. The threshold moves with the place of the data and the queue. Lost is time against the better device, on average "+
		"over %d tasks.", queuedUs, len(all))
	for i, device := range []string{"CPU", "GPU"} {
		if alone[i] != nil {
			f.Text += fmt.Sprintf(" No threshold does better than the %s alone with %s.", device, strings.Join(alone[i], "; with "))
		}
	}
	return f.decide(
		rule{HalfTrue, mixed > 10 && worst < 5, "Half true: a threshold is right for one place and one queue only."},
		rule{Refuted, mixed > 10, ""},
		rule{Shown, mixed <= 5, ""})
}
