package judge

import (
	"maps"
	"slices"

	"gpt2scope/traces"
	"gpt2scope/traces/tables"
	"gpt2scope/traces/window"
)

// stepRun is what the threads did for one step of one pass.
type stepRun struct {
	event *traces.Event         // the first
	lanes map[traces.Lane]int64 // ns of each thread
	parts []window.Interval
}

// longest and mean are of the threads.
func (r *stepRun) longest() int64 { return slices.Max(slices.Collect(maps.Values(r.lanes))) }

func (r *stepRun) mean() int64 {
	sum := int64(0)
	for _, ns := range r.lanes {
		sum += ns
	}
	return sum / int64(len(r.lanes))
}

// stepRuns returns the runs of steps in the window, and how many threads there are.
func (a *advisor) stepRuns() (runs []*stepRun, threads int) {
	index := map[traces.Run]*stepRun{}
	lanes := map[traces.Lane]bool{}
	for _, p := range a.counted {
		pass := a.PassOf(p.Event)
		if pass == nil || p.Step < 0 {
			continue
		}
		lanes[p.Lane] = true
		key := p.Run(pass.ID)
		r := index[key]
		if r == nil {
			r = &stepRun{event: p.Event, lanes: map[traces.Lane]int64{}}
			index[key] = r
			runs = append(runs, r)
		}
		r.lanes[p.Lane] += p.Duration
		r.parts = append(r.parts, window.Interval{From: p.Time, To: p.End()})
	}
	return runs, len(lanes)
}

func imbalanceRule(a *advisor) {
	runs, threads := a.stepRuns()
	if threads < 2 {
		return
	}
	rows := newTally()
	gain, sum, slowest := int64(0), int64(0), int64(0)
	for _, r := range runs {
		if len(r.lanes) < 2 {
			continue
		}
		longest, mean := r.longest(), r.mean()
		gain, sum, slowest = gain+longest-mean, sum+mean, slowest+longest
		rows.add(a.where(r.event), longest-mean, longest, 1)
	}
	if sum == 0 {
		return
	}
	a.hint(gain, rows.rows("run"), "divide the work into more and smaller parts that threads take as they come, use as many threads as there are free cores, and look for other work on them",
		"The slowest thread of a step takes %.2f times the mean of its threads: %s ms of %s ms are waiting for it.", float64(slowest)/float64(sum), inMS(gain), inMS(slowest))
}

func fewThreadsRule(a *advisor) {
	runs, threads := a.stepRuns()
	rows := newTally()
	n, gain, time := 0, int64(0), int64(0)
	for _, r := range runs {
		if len(r.lanes) >= threads {
			continue
		}
		n++
		ns := window.Length(r.parts)
		lost := int64(float64(ns) * (1 - float64(len(r.lanes))/float64(threads)))
		gain, time = gain+lost, time+ns
		rows.add(a.where(r.event), lost, ns, 1)
	}
	a.hint(gain, rows.rows("run"), "divide these steps between the threads, or fuse them with a neighbour that is divided",
		"Of %d threads fewer have work in %s, which take %s ms.", threads, numberOf(n, "step run"), inMS(time))
}

func barriersRule(a *advisor) {
	ns, gaps, rows := a.idleOf(tables.IdleThreads)
	a.hint(ns, rows, "fuse small steps, let threads spin rather than sleep where they meet, and use fewer threads for small passes",
		"Between steps of a pass no thread works for %s ms in %s, in which the threads meet.", inMS(ns), numberOf(gaps, "gap"))
}

func betweenRule(a *advisor) {
	ns, gaps, rows := a.idleOf(tables.IdleHost)
	a.hint(ns, rows, "take work out from between passes: output, allocation, sampling",
		"No step runs for %s ms in %s: the program does other things.", inMS(ns), numberOf(gaps, "gap"))
}
