package stages

import (
	"cmp"
	"slices"

	"gpt2scope/traces"
)

// split divides the kernels of a recording into those that may be of one program's passes: by process and device. Each
// list is in order of time.
func split(t *traces.Trace) [][]*traces.Event {
	type place struct {
		process int64
		device  int32
	}
	index := map[place]int{}
	var lists [][]*traces.Event
	for i := range t.Events {
		e := &t.Events[i]
		if e.Kind != traces.KindKernel {
			continue
		}
		at := place{t.Header.ProcessOf(e), e.Lane.Device}
		n, ok := index[at]
		if !ok {
			n = len(lists)
			index[at] = n
			lists = append(lists, nil)
		}
		lists[n] = append(lists[n], e)
	}
	for _, l := range lists {
		slices.SortStableFunc(l, func(a, b *traces.Event) int { return cmp.Compare(a.Time, b.Time) })
	}
	return lists
}

// sure returns the time of the kernels that have a stage, and the same weighted by how sure that is.
func (r *Inference) sure() (time, weighted float64) {
	for _, k := range r.Kernels {
		if k.Stage != nil {
			time, weighted = time+float64(k.event.Duration), weighted+float64(k.event.Duration)*k.Confidence
		}
	}
	return time, weighted
}

// unite puts several inferences together. The number of layers, the type and the model are those of the one that gives
// most time a stage.
func unite(parts []*Inference) *Inference {
	all := &Inference{Passes: []*Pass{}, Against: []string{}, CostsFrom: []string{}}
	most := -1.0
	for chain, r := range parts {
		for _, text := range r.Against {
			if !slices.Contains(all.Against, text) {
				all.Against = append(all.Against, text)
			}
		}
		if _, w := r.sure(); w > most {
			most, all.Layers, all.DType, all.CostsFrom, all.model = w, r.Layers, r.DType, r.CostsFrom, r.model
		}
		for _, p := range r.Passes {
			p.chain = chain
		}
		all.Kernels, all.Passes = append(all.Kernels, r.Kernels...), append(all.Passes, r.Passes...)
	}
	slices.SortStableFunc(all.Passes, func(a, b *Pass) int { return cmp.Compare(a.Start, b.Start) })
	slices.SortStableFunc(all.Kernels, func(a, b *Kernel) int { return cmp.Compare(a.Start, b.Start) })
	time, weighted := all.sure()
	all.Confidence = round(weighted / max(1, time))
	return all
}
