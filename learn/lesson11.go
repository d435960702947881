package learn

import (
	"fmt"

	"gpt2scope/traces"
	"gpt2scope/traces/window"
)

var lesson11 = Lesson{
	Number: 11,
	Claim:  "a device synchronise marks the end of a layer; correlation ids pair launches with kernels",
	GPU:    &Experiment{Run: ofEagerRun(layersOf), Judge: judgeLayers},
	Why: `Each launch gets a correlation id, and the record of its kernel carries the same id. That pairs the two,
however late the kernel runs. Time does not: the host runs ahead, so a kernel can begin when the range around its
launch is already closed. And no call of the host keeps layers apart. The kernels of a stream run in the order of
their launches, so the first kernel of a layer waits, on the device, for the last one of the layer before. A
synchronisation after each layer would be right too, but it empties the queue, and the GPU idles until the next launch
arrives; an engine that is meant to be fast has none. So to find layers, put a range around each step, and follow the
ids from there to the kernels.`,
	GoOn: "infer trace show sample:gpt2-eager --by layer",
}

// layersOf counts, in each pass, the layers, the synchronisations of its thread, and the kernels: those whose call has
// their correlation id, those that began after the range of their step had closed, and those that began before the
// kernels of an earlier layer had ended.
func layersOf(t *traces.Trace) (d Data) {
	w := window.New(t, -1)
	kernels := map[*traces.Event][]*traces.Event{} // by pass, in order
	for _, e := range w.Work {
		if p := w.PassOf(e); p != nil && e.Kind == traces.KindKernel {
			kernels[p] = append(kernels[p], e)
		}
	}
	for i, pass := range w.Passes {
		p, layers, syncs := pass.Event, map[int]bool{}, 0
		for _, e := range t.Events {
			if e.Kind.IsCall() && e.Lane.Process == p.Lane.Process && e.Lane.ID == p.Lane.ID &&
				e.Time >= p.Time && e.Time < p.End() && e.Call() == traces.CallSync {
				syncs++
			}
		}
		paired, late, mixed := 0, 0, 0
		ended := map[int]int64{} // of the kernels of a slot: the last end
		for _, k := range kernels[p] {
			if w.CallOf(k) != nil {
				paired++
			}
			if range_ := w.Parent(k); range_ != nil && k.Time > range_.End() {
				late++
			}
			step, ok := t.Header.Step(k)
			if !ok || step.Slot < 0 {
				continue
			}
			layers[step.Layer] = true
			for slot, end := range ended {
				if slot < step.Slot && k.Time < end {
					mixed++
					break
				}
			}
			ended[step.Slot] = max(ended[step.Slot], k.End())
		}
		for quantity, n := range map[string]int{"layers": len(layers), "synchronisations": syncs, "kernels": len(kernels[p]),
			"paired": paired, "after_range": late, "before_layer": mixed} {
			d.add(w.PassName(p), quantity, float64(i), float64(n))
		}
	}
	return d
}

func judgeLayers(d Data) Finding {
	sum := func(quantity string) (all float64) {
		for _, of := range d.cases(quantity) {
			all += total(d.values(of, quantity))
		}
		return all
	}
	layers, syncs, kernels, paired := sum("layers"), sum("synchronisations"), sum("kernels"), sum("paired")
	perLayer, share := syncs/layers, 100*paired/kernels
	f := Finding{Figures: []Figure{
		exact("synchronisations per layer", "", perLayer),
		exact("kernels paired with a launch by id", "%", share),
		exact("kernels that began after the range of their launch", "%", 100*sum("after_range")/kernels),
		exact("kernels that began before an earlier layer ended", "%", 100*sum("before_layer")/kernels),
	}}
	f.Text = fmt.Sprintf("While %.0f layers of GPT-2 ran, the host waited for the GPU %s. %s of %s kernels have the id "+
		"of a launch.", layers, countOf(int(syncs), "time"), number(paired), number(kernels))
	return f.decide(
		rule{HalfTrue, perLayer < 0.5 && share == 100, "Half true: no synchronisation marks a layer, but ids do pair launches with kernels."},
		rule{Refuted, perLayer < 0.5 || share < 100, ""},
		rule{Shown, perLayer >= 1, ""})
}
