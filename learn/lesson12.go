package learn

import (
	"context"
	"fmt"

	"gpt2scope/traces"
	"gpt2scope/traces/window"
)

var lesson12 = Lesson{
	Number: 12,
	Claim:  "nvtx_sum gives the time of a task",
	GPU:    &Experiment{Run: rangesOnGPU, Judge: judgeRanges, Picture: drawRanges},
	Why: `The host pushes and pops a range. What it does in between is to launch a kernel, and a launch returns at once. So nvtx_sum sums the time that launching
took. If a first call loads a module, that is in the sum, and the kernel's own time is a small part of it. If a kernel is long, it outlives its
range, and most of it is not in the sum. So the error goes both ways, and no factor corrects it. nvtx_gpu_proj_sum projects a
range to the GPU: from the start of the first kernel that was launched in it to the end of the last. That is the time of the task on the
device, with the gaps between its kernels. A CUDA graph is launched by one call, so its kernels belong to
ranges only by its nodes.`,
	GoOn: "nsys stats --report nvtx_sum,nvtx_gpu_proj_sum run.nsys-rep",
}

func rangesOnGPU(ctx context.Context, e *Env) (Data, error) {
	t, err := e.recordRun(ctx, "eager", "-n", "12")
	if err != nil {
		return nil, err
	}
	return rangesOf(t), nil
}

// rangesOf sums, for each stage and pass, the time of the stage's ranges on the host, as nvtx_sum does, and the time from the first to
// the last kernel launched in each, as nvtx_gpu_proj_sum does. The first pass is 0, whatever is warm-up.
func rangesOf(t *traces.Trace) (d Data) {
	w := window.New(t, -1)
	passes := map[*traces.Event]int{}
	type key struct {
		stage string
		pass  int
	}
	host, device := map[key]int64{}, map[key]int64{}
	var order []key
	for i := range t.Events {
		e := &t.Events[i]
		if e.Kind != traces.KindStep && e.Kind != traces.KindPass {
			continue
		}
		if e.Kind == traces.KindPass {
			if e.Lane.Kind == traces.LaneThread {
				passes[e] = len(passes)
			}
			continue
		}
		pass, ok := passes[w.PassOf(e)]
		if !ok {
			continue
		}
		k := key{traces.InAnyLayer(e.Name), pass}
		if e.Lane.Kind == traces.LaneStream {
			device[k] += e.Duration
			continue
		}
		if _, seen := host[k]; !seen {
			order = append(order, k)
		}
		host[k] += e.Duration
	}
	for _, k := range order {
		if device[k] > 0 {
			d.add(k.stage, "host_us", float64(k.pass), float64(host[k])/1e3)
			d.add(k.stage, "device_us", float64(k.pass), float64(device[k])/1e3)
		}
	}
	return d
}

func total(values []float64) (sum float64) {
	for _, v := range values {
		sum += v
	}
	return sum
}

func judgeRanges(d Data) Finding {
	var most, least Figure
	var mostOf, leastOf string
	for _, stage := range d.cases("host_us") {
		f := exact("host over device, "+stage, "x", total(d.values(stage, "host_us"))/total(d.values(stage, "device_us")))
		if mostOf == "" || f.Value > most.Value {
			most, mostOf = f, stage
		}
		if leastOf == "" || f.Value < least.Value {
			least, leastOf = f, stage
		}
	}
	if mostOf == "" {
		return undecided("No stage has a range and a kernel.")
	}
	sum := func(stage, quantity string) string {
		return exact("", "us", total(d.values(stage, quantity))).Short()
	}
	middle := figureOf("host over device, median pass, "+mostOf, "x", ratios(d.values(mostOf, "host_us"), d.values(mostOf, "device_us")))
	f := Finding{Figures: []Figure{most, least, middle}, Text: fmt.Sprintf(
		"The ranges of %s sum to %s on the host, its kernels take %s: %s the time. By the median pass, in which no module is loaded, it is %s. "+
			"The ranges of %s sum to %s, its kernels take %s: %s.",
		mostOf, sum(mostOf, "host_us"), sum(mostOf, "device_us"), most.Short(), middle, leastOf, sum(leastOf, "host_us"), sum(leastOf, "device_us"), least.Short())}
	switch {
	case most.Value >= 2 || least.Value <= 0.5:
		f.Verdict = Refuted
	case most.Value < 1.1 && least.Value > 0.9:
		f.Verdict = Shown
	default:
		f.Verdict = Unknown
	}
	return f
}

func drawRanges(d Data) *Picture {
	p := &Picture{Title: "Ranges on the host against the kernels launched in them", X: Axis{Name: "host over device", Log: true}}
	for _, stage := range d.cases("host_us") {
		p.Bars = append(p.Bars, barOf(exact(stage, "x", total(d.values(stage, "host_us"))/total(d.values(stage, "device_us"))), 1))
	}
	return p
}
