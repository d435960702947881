package exec

import (
	"time"

	"gpt2scope/gpt2"
	"gpt2scope/record"
	"gpt2scope/traces"
)

// What a session loads when a pass first needs it.
const (
	loadBLAS    = iota // cuBLASLt: the library, and its kernels at their first launch
	loadKernels        // kernels of our own, at their first launch or the first question about them
)

var loadNames = [...]string{loadBLAS: "cuBLASLt", loadKernels: "kernels"}

// loading adds up the time of calls that load something. CUDA loads libraries and kernels lazily, in the call that
// first needs them.
type loading struct {
	times [len(loadNames)]time.Duration
	to    *record.Recorder // nil where passes are not recorded
}

// leastLoad is how long a first call takes that loads something: others take microseconds.
const leastLoad = 100 * time.Microsecond

// first does a call that may load something for the first time.
func (l *loading) first(what int, call func() error) error {
	var at int64
	if l.to != nil {
		at = l.to.Now()
	}
	began := time.Now()
	err := call()
	took := time.Since(began)
	if took < leastLoad {
		return err
	}
	l.times[what] += took
	if l.to != nil {
		e := traces.Plain(traces.KindRange, l.to.Thread(), "load "+loadNames[what], at, int64(took))
		e.ID, e.Domain = l.to.IDs(1), record.Domain
		l.to.Add(e)
	}
	return err
}

// Loads returns what passes loaded so far: [gpt2.OnDevice].
func (r *Runner) Loads() []gpt2.Load {
	var out []gpt2.Load
	for what, time := range r.loading.times {
		if time > 0 {
			out = append(out, gpt2.Load{What: loadNames[what], Time: time})
		}
	}
	return out
}
