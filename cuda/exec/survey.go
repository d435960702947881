package exec

import (
	"cmp"
	"errors"
	"runtime"
	"slices"

	"gpt2scope/cuda"
	"gpt2scope/gpt2"
)

// standIn is an address that nothing reads: choosing a product's algorithm depends only on whether there is a bias and
// on the alignment of addresses.
const standIn cuda.Ptr = 256

// Survey returns what a session would do and need: [gpt2.Surveyor]. It counts the padded vocabulary, vectors in both of
// their types, and cuBLASLt's workspace if a pass has products.
func (b *Backend) Survey(m *gpt2.Model, o gpt2.Options, passes ...gpt2.Pass) (s *gpt2.Survey, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	w := writer{backend: b, config: m.Config, options: o, loading: new(loading), params: map[string]param{}}
	for i := range w.at.buffers {
		w.at.buffers[i] = standIn
	}
	s = &gpt2.Survey{Cache: b.cacheBytes(m.Config, o)}
	for _, p := range m.Config.ParamsOf(o.Layers) {
		s.Weights += b.bytesOf(p)
		address := param{ptr: standIn}
		if isVector(p) && b.dtype == cuda.BF16 {
			address.half = standIn
		}
		w.params[p.Name] = address
	}
	if w.stream, err = b.dev.NewStream(); err != nil {
		return nil, err
	}
	defer func() { err = cmp.Or(err, w.stream.Close()) }()
	sample, attention, err := b.workBytes(w.stream, m.Config, o)
	if err != nil {
		return nil, err
	}
	s.Work = sample + attention + b.widenedBytes(m.Config)
	plans := gpt2.NewPlanCache(b, m.Config, o.Layers)
	var largest [gpt2.NumBuffers]int64
	blas := false
	for _, pass := range passes {
		pass = b.executed(pass, o.Context)
		w.plan = plans.Plan(pass)
		for i := range largest {
			largest[i] = max(largest[i], b.bufferBytes(gpt2.Buffer(i), w.plan))
		}
		w.steps = make([][]launch, 1)
		for _, step := range w.plan.Steps {
			if step.Op() != gpt2.OpLinear || step.Ops[0].Rows == 0 {
				continue
			}
			if err := w.linear(step); err != nil {
				return nil, gpt2.NewStageError(w.plan, step, 0, err)
			}
		}
		if (b.mode == Persistent || b.singleSteps) && pass.IsDecode() && pass.Sample {
			bytes, err := w.session().Bytes(w.plan)
			how, _ := b.chooseMode(&passFacts{config: m.Config, layers: len(o.Layers), pass: pass})
			switch {
			case how.mode != Persistent && !how.singleSteps:
				b.fallBack(how.why)
				bytes = 0
			case errors.Is(err, cuda.ErrNoKernel):
				b.fallBack(reason(err))
			case err != nil:
				return nil, err
			default:
				b.found.Store(new(string))
			}
			s.Work += bytes
		}
		s.Passes = append(s.Passes, pass)
		blas = blas || slices.ContainsFunc(w.steps[0], func(l launch) bool { return l.product > 0 })
	}
	for _, n := range largest {
		s.Activations += n
	}
	if blas {
		s.Work += cuda.BLASWorkspace
	}
	free, all, err := b.dev.Memory()
	s.Free, s.InAll = int64(free), int64(all)
	return s, err
}
