package learn

import "testing"

// The recordings of the samples: eager mode asks whether the stream is being captured, and has no graph.
func TestCaptures(t *testing.T) {
	var d Data
	for mode, file := range map[string]string{"eager": "gpt2-L1-eager-cupti", "graph": "gpt2-L1-graph-cupti"} {
		countCalls(&d, mode, sample(t, file))
	}
	f := judgeCaptures(d)
	if f.Verdict != Refuted || f.Figures[0].Value != 1 || f.Figures[2].Value != 0 || f.Figures[4].Value != 0 || f.Figures[7].Value != 38 || !(f.Figures[9].Value > 300) {
		t.Errorf("the samples: %+v", f)
	}
	eager := func(asks, launches, nodes, kernels float64) (d Data) {
		d.add("eager", "kernels", 0, kernels)
		d.add("eager", "kernels_of_graphs", 0, nodes)
		d.add("eager", "calls of cudaStreamIsCapturing_v10000", 0, asks)
		d.add("eager", "calls of cudaGraphLaunch", 0, launches)
		return d
	}
	verdicts(t, judgeCaptures, given{
		"a graph was launched":     {eager(1, 3, 0, 10), Shown},
		"kernels are nodes":        {eager(1, 0, 5, 10), Shown},
		"the call is not there":    {eager(0, 0, 0, 10), Unknown},
		"the call, and no graph":   {eager(2, 0, 0, 10), Refuted},
		"a recording of no kernel": {eager(2, 0, 0, 0), Unknown},
	})
}
