package learn

import (
	"fmt"
	"math"

	"gpt2scope/traces"
	"gpt2scope/traces/tables"
	"gpt2scope/traces/window"
)

var lesson12 = Lesson{
	Number: 12,
	Claim:  "nvtx_sum gives the time of a task",
	CPU:    &Experiment{Of: "From a recording of PyTorch in the program, sample:bad, whose ranges wait for the GPU", Run: waitingRanges, Judge: judgeWaiting},
	GPU: &Experiment{Run: ofEagerRun(rangesOf), Judge: judgeRanges,
		Picture: bars("Ranges on the host against the kernels launched in them", log("host over device"), 1,
			func(d Data) (figures []Figure) {
				for _, stage := range d.cases("host_us") {
					figures = append(figures, exact(stage, "x", d.hostOverDevice(stage)))
				}
				return figures
			})},
	Why: `The host opens and closes a range. In between it launches a kernel, and a launch returns at once. So nvtx_sum
adds up what launching took, and for the first call of a kernel what loading it took. A long kernel still runs when its
range has closed. The error goes both ways, so no factor corrects it. A program that synchronises before it closes a range is
another case: there nvtx_sum is right. The rule: synchronise before a range closes, or read the projection.
nvtx_gpu_proj_sum projects a range onto the GPU: from the start of the first kernel launched in it to the end of the
last. That is the time of the task on the device, gaps between its kernels included. A CUDA graph is launched by a
single call, so its kernels can be given to ranges only by their graph nodes.`,
	GoOn: "infer trace show sample:bad --by range",
}

// rangesOf sums, for each stage and pass, the time of the stage's ranges on the host, as nvtx_sum does, and the time
// from the first to the last kernel launched in each, as nvtx_gpu_proj_sum does. The first pass is 0, whatever is
// warm-up.
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
		if e.Kind == traces.KindPass && e.Lane.Kind == traces.LaneThread {
			passes[e] = len(passes)
		}
		pass, ok := passes[w.PassOf(e)]
		if e.Kind != traces.KindStep || !ok {
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

// hostOverDevice is what nvtx_sum gives a stage over the time of its kernels.
func (d Data) hostOverDevice(stage string) float64 {
	return total(d.values(stage, "host_us")) / total(d.values(stage, "device_us"))
}

func judgeRanges(d Data) Finding {
	stages := d.cases("host_us")
	if len(stages) == 0 {
		return undecided("No stage has a range and a kernel.")
	}
	most, least := stages[0], stages[0]
	for _, stage := range stages {
		if d.hostOverDevice(stage) > d.hostOverDevice(most) {
			most = stage
		}
		if d.hostOverDevice(stage) < d.hostOverDevice(least) {
			least = stage
		}
	}
	figures := func(stage string) []Figure {
		return []Figure{
			exact(stage+": ranges on the host (nvtx_sum)", "us", total(d.values(stage, "host_us"))),
			exact(stage+": kernels on the GPU", "us", total(d.values(stage, "device_us"))),
			exact(stage+": nvtx_sum over its kernels", "x", d.hostOverDevice(stage)),
		}
	}
	f := Finding{Figures: append(figures(most), figureOf(most+": the same in the median pass", "x",
		ratios(d.values(most, "host_us"), d.values(most, "device_us"))))}
	f.Figures = append(f.Figures, figures(least)...)
	high, low := f.Figures[2], f.Figures[6]
	f.Text = fmt.Sprintf("GPT-2 ran, with ranges that do not wait for the GPU. nvtx_sum gives the stage %s %s the time of its kernels; "+
		"in the median pass, without the loading of kernels in the first one, %s. It gives the stage %s %s.",
		most, high.Short(), f.Figures[3].Short(), least, low.Short())
	return f.decide(
		rule{Refuted, high.Value >= 2 || low.Value <= 0.5, "So it is not the time of the task, nor off by a fixed factor."},
		rule{Shown, high.Value < 1.1 && low.Value > 0.9, ""})
}

// waitingRanges adds the passes of a program that waits for the GPU before a range closes.
func waitingRanges(l *lab) {
	for _, r := range must(tables.Summarize(l.sample("bad"), tables.ByRange, -1)).Ranges {
		if r.Name == ":forward" {
			l.add("forward", "host_us", 0, float64(r.Host)/1e3)
			l.add("forward", "projected_us", 0, float64(r.GPU)/1e3)
		}
	}
}

// rangesAgree is the most by which nvtx_sum may differ from the projection, as a share.
const rangesAgree = 0.05

func judgeWaiting(d Data) Finding {
	host, projected := total(d.values("forward", "host_us")), total(d.values("forward", "projected_us"))
	if !(host > 0 && projected > 0) {
		return undecided("There is no pass.")
	}
	ratio := exact("forward: nvtx_sum over the projection", "x", host/projected)
	f := Finding{Figures: []Figure{exact("forward: ranges on the host (nvtx_sum)", "us", host),
		exact("forward: projected onto the GPU (nvtx_gpu_proj_sum)", "us", projected), ratio}}
	f.Text = fmt.Sprintf("Where each pass ends with a wait, nvtx_sum is %s the time on the GPU.", ratio.Short())
	return f.decide(rule{Shown, math.Abs(ratio.Value-1) <= rangesAgree, ""}, rule{Refuted, true, ""})
}
