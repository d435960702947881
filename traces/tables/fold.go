package tables

import "gpt2scope/traces"

// FoldLayers returns the rows of a table by stage with one row for each stage of a kind of pass over all layers:
// "h.N.attn.c_attn" sums "h.0.attn.c_attn", "h.1.attn.c_attn" and so on. A step fused with one of the next layer is
// "h.N.residual_2+h.(N+1).ln_1". A stage of one layer keeps its name, and rows of other kinds stay as they are. The
// folded rows stand where the first of their rows stood, and sum to the wall time as those do.
func FoldLayers(t *Table) []Row {
	var rows []Row
	index := map[rowKey]int{}
	for i := range t.Rows {
		r := &t.Rows[i]
		name, isLayer := r.Name, 0
		if r.Kind == RowWork {
			if name = traces.InAnyLayer(r.Name); name != r.Name {
				isLayer = 1
			}
		}
		key := rowKey{kind: r.Kind, phase: r.Phase, name: name}
		at, ok := index[key]
		if !ok {
			index[key] = len(rows)
			rows = append(rows, *r)
			rows[len(rows)-1].Layers, rows[len(rows)-1].Of = isLayer, []int{i}
			continue
		}
		f := &rows[at]
		f.Name = name
		f.Layers += isLayer
		f.Of = append(f.Of, i)
	}
	for i := range rows {
		if f := &rows[i]; len(f.Of) > 1 {
			all := sum(t.Rows, f.Of)
			all.Name, all.Layers, all.Of = f.Name, f.Layers, f.Of
			rows[i] = all
		}
	}
	return rows
}

// sum returns a row that sums several: their phase, operation and plan are the first one's.
// Its least time is known if that of each is.
func sum(rows []Row, of []int) Row {
	first := &rows[of[0]]
	s := Row{Kind: first.Kind, Phase: first.Phase, Op: first.Op, Plan: first.Plan, order: first.order}
	allFloors := true
	for _, i := range of {
		r := &rows[i]
		s.Calls, s.Kernels, s.Launches, s.Bounded = s.Calls+r.Calls, s.Kernels+r.Kernels, s.Launches+r.Launches,
			s.Bounded+r.Bounded
		s.Queued, s.Copies = s.Queued+r.Queued, s.Copies+r.Copies
		s.Host, s.Busy, s.Exclusive = s.Host+r.Host, s.Busy+r.Busy, s.Exclusive+r.Exclusive
		s.FLOPs, s.Bytes, s.floor = s.FLOPs+r.FLOPs, s.Bytes+r.Bytes, s.floor+r.floor
		s.LongestThread, s.MeanThread = s.LongestThread+r.LongestThread, s.MeanThread+r.MeanThread
		s.durations = append(s.durations, r.durations...)
		s.counters.Join(&r.counters)
		if r.Inside != nil {
			s.inside(*r.Inside)
		}
		s.floorOfBytes += r.floorOfBytes
		allFloors = allFloors && r.Floor > 0
	}
	if !allFloors {
		s.floor = 0
	}
	s.settle()
	return s
}
