package dispatch

import (
	"math/rand/v2"

	"gpt2scope/predict"
	"gpt2scope/tasks"
)

// Case is work that was measured on all devices: what a stream is drawn from.
type Case struct {
	Task, Shape string
	Work        []predict.Work // by device
	Repeats     [][]Times      // by device
}

// Drawn is a stream of jobs with the times that they take, each drawn once from the repeats of
// its case, so that all policies meet the same.
type Drawn struct {
	Jobs    []Job
	Classes int
	times   [][]Times // by job and device
	medians [][]Times
}

// Times implements Truth.
func (d *Drawn) Times(device int, j *Job) Times { return d.times[j.ID][device] }

// Medians is a truth in which each job takes the median of the repeats of its case.
func (d *Drawn) Medians() Truth { return &Drawn{times: d.medians} }

// Draw draws n jobs. Kinds of task are equally likely, and so are the cases of a kind.
// interval is the mean time between two jobs in us, exponentially distributed; with 0 all are
// there from the start.
func Draw(cases []Case, n int, interval float64, seed uint64) *Drawn {
	random := rand.New(rand.NewPCG(seed, 0))
	var kinds []string
	classes := map[string]int{}
	byKind := map[string][]*Case{}
	inLane := map[string]bool{}
	for i := range cases {
		c := &cases[i]
		kind := c.Task + " " + c.Work[Host].DType
		if _, ok := classes[kind]; !ok {
			classes[kind] = len(kinds)
			kinds = append(kinds, kind)
			inLane[kind] = tasks.InLane(c.Task)
		}
		byKind[kind] = append(byKind[kind], c)
	}
	d := &Drawn{Classes: len(kinds)}
	at := 0.0
	for i := range n {
		if len(kinds) == 0 {
			break
		}
		kind := kinds[random.IntN(len(kinds))]
		c := byKind[kind][random.IntN(len(byKind[kind]))]
		times, medians := make([]Times, len(c.Repeats)), make([]Times, len(c.Repeats))
		for k, r := range c.Repeats {
			times[k], medians[k] = r[random.IntN(len(r))], medianTimes(r)
		}
		d.Jobs = append(d.Jobs, Job{ID: i, Task: c.Task, Shape: c.Shape, Class: classes[kind], Work: c.Work, Lane: inLane[kind], Arrive: at})
		d.times = append(d.times, times)
		d.medians = append(d.medians, medians)
		if interval > 0 {
			at += random.ExpFloat64() * interval
		}
	}
	return d
}
