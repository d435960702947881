package learn

import (
	"context"
	"fmt"
	"strings"

	"gpt2scope/internal/chart"
	"gpt2scope/traces"
)

var lesson09 = Lesson{
	Number: 9,
	Claim:  "cudaStreamIsCapturing in a timeline means that CUDA graphs are used",
	GPU:    &Experiment{Run: capturesOnGPU, Judge: judgeCaptures, Picture: drawCaptures},
	Why: `cudaStreamIsCapturing asks whether a stream is being captured at this moment. It captures nothing and
launches nothing. Libraries ask because some of what they do, such as allocating memory, is forbidden during a
capture: PyTorch's allocator asks, and so does this program before it gives cuBLASLt its workspace. So the call is in
timelines of programs that never use a graph; the answer there is no. A graph leaves other marks:
cudaStreamBeginCapture and cudaGraphInstantiate a few times, then cudaGraphLaunch again and again, few calls for many
kernels, and kernels with the number of a graph node (nsys shows them with --cuda-graph-trace=node). Look for those.
The name of a call tells what was asked, not what the answer was.`,
	GoOn: "infer trace show traces/samples/gpt2-L12-graph-cupti.json.gz --by launch",
}

// The two runs of lesson 9: modes of a GPU.
var captureModes = []string{"eager", "graph"}

// capturesOnGPU records a run in each mode, in processes of their own, since a process has one recorder.
func capturesOnGPU(ctx context.Context, e *Env) (d Data, err error) {
	for _, mode := range captureModes {
		t, err := e.recordRun(ctx, mode, "--layers", "1", "-n", "8")
		if err != nil {
			return nil, err
		}
		countCalls(&d, mode, t)
	}
	return d, nil
}

// countCalls adds how often each function of the API was called in a recording, how many kernels ran, and how many of
// them as nodes of a graph.
func countCalls(d *Data, mode string, t *traces.Trace) {
	calls, kernels, nodes := map[string]int{}, 0, 0
	var names []string
	for _, event := range t.Events {
		switch event.Kind {
		case traces.KindRuntime:
			if calls[event.Name]++; calls[event.Name] == 1 {
				names = append(names, event.Name)
			}
		case traces.KindKernel:
			kernels++
			if event.Node != 0 {
				nodes++
			}
		}
	}
	d.add(mode, "kernels", 0, float64(kernels))
	d.add(mode, "kernels_of_graphs", 0, float64(nodes))
	for _, name := range names {
		d.add(mode, "calls of "+name, 0, float64(calls[name]))
	}
}

// called is how often a mode called the functions whose names begin so: "cudaGraphInstantiate" has versions.
func (d Data) called(mode, prefix string) (n float64) {
	for _, p := range d {
		if p.Case == mode && strings.HasPrefix(p.Quantity, "calls of "+prefix) {
			n += p.Value
		}
	}
	return n
}

func judgeCaptures(d Data) Finding {
	var f Finding
	for _, mode := range captureModes {
		asks := exact(mode+": cudaStreamIsCapturing calls", "", d.called(mode, "cudaStreamIsCapturing"))
		begins := exact(mode+": cudaStreamBeginCapture calls", "", d.called(mode, "cudaStreamBeginCapture"))
		launches := exact(mode+": cudaGraphLaunch calls", "", d.called(mode, "cudaGraphLaunch"))
		kernels := figureOf(mode+": kernels", "", d.values(mode, "kernels"))
		nodes := figureOf(mode+": kernels in a graph", "", d.values(mode, "kernels_of_graphs"))
		f.Figures = append(f.Figures, asks, begins, launches, kernels, nodes)
	}
	asks, graphs := f.Figures[0].Value, f.Figures[4].Value+f.Figures[2].Value
	f.Text = fmt.Sprintf("Two runs of GPT-2 were recorded: eager launches each kernel by a call, graph launches CUDA graphs. The timeline of eager has cudaStreamIsCapturing %s, and %s of its %s kernels are nodes of a graph.", times(asks), count(f.Figures[4].Value), count(f.Figures[3].Value))
	switch {
	case len(d.values("eager", "kernels")) == 0 || f.Figures[3].Value == 0:
		return undecided("There is no recording of eager mode with kernels.", f.Figures...)
	case asks == 0:
		f.Verdict = Unknown
		f.Text += " Without the call there, this does not tell."
	case graphs > 0:
		f.Verdict = Shown
		f.Text += " Where the call is, there are graphs."
	default:
		f.Verdict = Refuted
		f.Text += " The call is there, and no graph."
	}
	return f
}

// times writes how often something happened.
func times(n float64) string {
	switch n {
	case 0:
		return "never"
	case 1:
		return "once"
	}
	return count(n) + " times"
}

func drawCaptures(d Data) chart.Picture {
	return bars("What the timelines of two modes hold", linear("calls or kernels"), 1, judgeCaptures(d).Figures...)
}
