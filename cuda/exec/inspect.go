package exec

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"gpt2scope/cuda"
	"gpt2scope/gpt2"
	"gpt2scope/nvtx"
	"gpt2scope/nvtx/annotate"
)

// InspectDecode runs launches of the decode kernel that note when each block did what, each
// of as many decode steps as a launch has, or as the context has room for:
// [gpt2.DecodeInspector]. The error matches [cuda.ErrNoKernel] if decode steps run as graphs.
func (r *Runner) InspectDecode(ctx context.Context, ids []int32, launches int) (*gpt2.InsideDecode, error) {
	if r.failed != nil {
		return nil, r.failed
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c, err := r.compile(r.decodePass())
	if err != nil {
		return nil, err
	}
	if _, err := r.choose(c, false); err != nil {
		return nil, r.fail(c, err)
	}
	t := &r.together
	if !t.on {
		if why := r.backend.fellBack(); why != "" {
			return nil, noProgram(why)
		}
		mode, why := r.backend.Mode()
		return nil, noProgram("decode steps run in mode " + mode.String() + " (" + why + "); mode persistent runs them in one kernel")
	}
	past := r.state.position
	defer r.state.reset(past)
	start := max(0, min(past, r.options.Context-r.atOnce()))
	n := min(r.atOnce(), r.options.Context-start)
	steps, blocks := r.stamped()
	count := n * len(steps) * blocks
	buffer, err := r.backend.dev.Alloc(int64(count) * int64(unsafe.Sizeof(cuda.DecodeStamp{})))
	if err != nil {
		return nil, fmt.Errorf("stamps of %d decode steps: %w", n, err)
	}
	defer buffer.Free()
	inside := &gpt2.InsideDecode{Plan: c.plan, Steps: steps, Tokens: n, Blocks: blocks}
	for range launches {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		times, err := r.inspectLaunch(c, ids, start, n, buffer, make([]cuda.DecodeStamp, count))
		if err != nil {
			return nil, r.fail(c, err)
		}
		inside.Launches = append(inside.Launches, times)
	}
	return inside, nil
}

// inspectLaunch makes one launch of n decode steps at a position, and reads its stamps.
func (r *Runner) inspectLaunch(c *compiled, ids []int32, start, n int, buffer *cuda.Buffer, stamps []cuda.DecodeStamp) ([]gpt2.BlockTimes, error) {
	defer annotate.Range("inspect decode kernel", nvtx.Red)()
	r.state.position = start
	if err := r.state.enter(r.stream, ids, 1); err != nil {
		return nil, err
	}
	if err := r.stream.Set(buffer, 0, 0, buffer.Size()); err != nil {
		return nil, err
	}
	t := &r.together
	t.args.Stamps = buffer.Ptr()
	_, err := r.decodeTogether(c, start, n)
	t.args.Stamps = 0
	if err != nil {
		return nil, err
	}
	if err := r.stream.Synchronize(); err != nil {
		return nil, err
	}
	r.state.step += uint64(n)
	if _, err := r.ring.read(nil, r.state.step-1); err != nil {
		return nil, r.explain(c.plan, err)
	}
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(&stamps[0])), len(stamps)*int(unsafe.Sizeof(stamps[0])))
	if err := buffer.Read(0, bytes); err != nil {
		return nil, err
	}
	times := make([]gpt2.BlockTimes, len(stamps))
	for i, s := range stamps {
		times[i] = blockTimes(s)
	}
	return times, nil
}

// stamped returns of which steps of the plan the stamps of a decode step are, and of how many blocks.
func (r *Runner) stamped() (steps []int, blocks int) {
	t := &r.together
	steps = append(slices.Clone(t.planned), len(t.plan.Steps)-1) // the last one samples
	return steps, cmp.Or(int(t.args.Blocks), r.backend.dev.Info().Processors)
}

func blockTimes(s cuda.DecodeStamp) gpt2.BlockTimes {
	return gpt2.BlockTimes{Ready: s[cuda.DecodeReady], Arrived: s[cuda.DecodeArrived], Published: s[cuda.DecodePublished]}
}
