package counters

import (
	"slices"
	"strings"

	"gpt2scope/traces"
)

// Joined says how well counters and kernels fit.
type Joined struct {
	Kernels int // of the recording
	ByOrder int // that have the counters of one kernel, by its place among those of its name and grid
	ByName  int // that have the mean of those of their name and grid
	Unused  int // kernels with counters that the recording does not have
}

// key is what the kernels of two runs have in common.
type key struct {
	name        string
	grid, block [3]int32
}

// Join gives the kernels of a recording their counters. Kernels fit by their name, without
// namespaces and types, which tools write differently, and by grid and block. Among these, the
// order decides if the recording has as many, or a multiple: a pass was recorded several times
// and counted once. Otherwise each has the mean. Counters that the kernels had are replaced.
func (s *Set) Join(t *traces.Trace) Joined {
	byKey := map[key][]*Kernel{}
	for i := range s.Kernels {
		k := &s.Kernels[i]
		at := key{base(k.Name), k.Grid, k.Block}
		byKey[at] = append(byKey[at], k)
	}
	events := map[key][]*traces.Event{}
	var j Joined
	for i := range t.Events {
		if e := &t.Events[i]; e.Kind == traces.KindKernel {
			j.Kernels++
			at := key{base(e.Name), e.Grid, e.Block}
			if byKey[at] == nil { // one of the two does not say the grid
				at = key{name: at.name}
			}
			events[at] = append(events[at], e)
		}
	}
	// Kernels without a grid take those of all grids.
	for at, list := range events {
		if byKey[at] == nil && at.grid == [3]int32{} &&
			!slices.ContainsFunc(list, func(e *traces.Event) bool { return e.Grid != [3]int32{} }) {
			for i := range s.Kernels {
				if k := &s.Kernels[i]; base(k.Name) == at.name {
					byKey[at] = append(byKey[at], k)
				}
			}
		}
	}
	used := map[*Kernel]bool{}
	for at, list := range events {
		found := byKey[at]
		if len(found) == 0 {
			continue
		}
		for _, k := range found {
			used[k] = true
		}
		if n := len(found); len(list)%n == 0 && found[0].Runs == 1 {
			for i, e := range list {
				e.Counters = found[i%n].Counters
			}
			j.ByOrder += len(list)
			continue
		}
		var mean traces.CounterMean
		for _, k := range found {
			mean.Add(k.Counters, int64(k.Runs))
		}
		for _, e := range list {
			e.Counters = mean.Counters()
		}
		j.ByName += len(list)
	}
	j.Unused = len(s.Kernels) - len(used)
	return j
}

// base returns the name of a kernel without its return type, namespaces, template arguments and
// parameters: tools write those differently, or not at all.
func base(name string) string {
	name = traces.BareKernel(name)
	return strings.TrimSpace(name[strings.LastIndex(name, ":")+1:])
}
