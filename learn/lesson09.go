package learn

import (
	"fmt"
	"strings"

	"gpt2scope/traces"
)

var lesson09 = Lesson{
	Number: 9,
	Claim:  "cudaStreamIsCapturing in a timeline means that CUDA graphs are used",
	GPU: &Experiment{Run: capturesOnGPU, Judge: judgeCaptures,
		Picture: bars("What the timelines of two modes hold", linear("calls or kernels"), 1, found(judgeCaptures, ""))},
	Why: `cudaStreamIsCapturing asks whether a stream is being captured at this moment. It captures nothing and
launches nothing. Libraries ask because some of what they do, such as allocating memory, is forbidden during a
capture: PyTorch's allocator asks, and so does this program before it gives cuBLASLt its workspace. So the call is in
timelines of programs that never use a graph; the answer there is no. A graph leaves other marks:
cudaStreamBeginCapture and cudaGraphInstantiate a few times, then cudaGraphLaunch again and again, few calls for many
kernels, and kernels with the number of a graph node (nsys shows them with --cuda-graph-trace=node). Look for those.
The name of a call tells what was asked, not what the answer was.`,
	GoOn: "infer trace kpi sample:gpt2-graph",
}

// captureModes are those of the two runs that are recorded, in processes of their own: a process has one recorder.
var captureModes = []string{"eager", "graph"}

func capturesOnGPU(l *lab) {
	for _, mode := range captureModes {
		countCalls(&l.Data, mode, l.recordRun(mode, "--layers", "1", "-n", "8"))
	}
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

// called is how often a mode called a function whose name may have a version: "cudaGraphInstantiate" has several.
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
		for _, call := range []string{"cudaStreamIsCapturing", "cudaStreamBeginCapture", "cudaGraphLaunch"} {
			f.Figures = append(f.Figures, exact(mode+": "+call+" calls", "", d.called(mode, call)))
		}
		f.Figures = append(f.Figures, figureOf(mode+": kernels", "", d.values(mode, "kernels")),
			figureOf(mode+": kernels in a graph", "", d.values(mode, "kernels_of_graphs")))
	}
	asks, launches, kernels, nodes := f.Figures[0].Value, f.Figures[2].Value, f.Figures[3].Value, f.Figures[4].Value
	if !(kernels > 0) {
		return undecided("There is no recording of eager mode with kernels.", f.Figures...)
	}
	f.Text = fmt.Sprintf("Two runs of GPT-2 were recorded: eager launches each kernel by a call, graph launches CUDA "+
		"graphs. The timeline of eager has cudaStreamIsCapturing %s, and %s of its %s kernels are nodes of a graph.",
		times(asks), count(nodes), count(kernels))
	return f.decide(
		rule{Unknown, asks == 0, "Without the call there, this does not tell."},
		rule{Shown, nodes+launches > 0, "Where the call is, there are graphs."},
		rule{Refuted, true, "The call is there, and no graph."})
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
