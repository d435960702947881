package exec

import (
	"runtime"

	"gpt2scope/gpt2"
)

// Launches returns how many launches a pass of a phase is, those of cuBLASLt counted as
// one each. In graph mode they are the graph's nodes, and the host launches it once.
func (r *Runner) Launches(phase gpt2.Phase) (int, error) {
	if r.failed != nil {
		return 0, r.failed
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c, err := r.compile(r.backend.executed(phase, r.options.Context))
	if err != nil {
		return 0, err
	}
	n := 0
	for _, launches := range c.steps {
		n += len(launches)
	}
	return n, nil
}
