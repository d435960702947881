package exec

import (
	"cmp"
	"fmt"

	"gpt2scope/cuda"
	"gpt2scope/gpt2"
	"gpt2scope/nvtx"
	"gpt2scope/nvtx/annotate"
)

// memory is what a session holds on the device besides its state: the KV cache, activations, and what kernels work in.
type memory struct {
	cache         *cuda.Buffer                  // (slots of the run order, 2, B, NH, P, HS)
	buffers       [gpt2.NumBuffers]*cuda.Buffer // large enough for every pass compiled so far
	sampleWork    *cuda.Buffer
	attentionWork *cuda.Buffer
	widened       *cuda.Buffer // a matrix of 8-bit weights in bfloat16, or some of its rows
}

// allocate makes what does not depend on the pass.
func (m *memory) allocate(b *Backend, s *cuda.Stream, c gpt2.Config, o gpt2.Options) error {
	size := b.cacheBytes(c, o)
	var err error
	if m.cache, err = b.dev.Alloc(size); err != nil {
		return fmt.Errorf("the KV cache of %d x %d tokens takes %d MiB of GPU memory: %w", o.Batch, o.Context, size>>20, err)
	}
	sampleWork, attentionWork, err := b.workBytes(s, c, o)
	if err != nil {
		return err
	}
	if m.sampleWork, err = zeroed(s, sampleWork); err != nil {
		return err
	}
	if m.attentionWork, err = zeroed(s, attentionWork); err != nil {
		return err
	}
	if n := b.widenedBytes(c); n > 0 {
		m.widened, err = b.dev.Alloc(n)
	}
	return err
}

// zeroed allocates device memory of zeros.
func zeroed(s *cuda.Stream, bytes int64) (*cuda.Buffer, error) {
	b, err := s.Device().Alloc(bytes)
	if err != nil {
		return nil, err
	}
	return b, s.Set(b, 0, 0, b.Size())
}

// lacks reports whether a buffer is smaller than n bytes.
func (m *memory) lacks(b gpt2.Buffer, n int64) bool {
	return n > 0 && (m.buffers[b] == nil || m.buffers[b].Size() < n)
}

// reallocate frees a buffer and allocates n bytes for it.
func (m *memory) reallocate(dev *cuda.Device, b gpt2.Buffer, n int64) error {
	defer annotate.Range("allocate "+b.String(), nvtx.Cyan)()
	if err := free(m.buffers[b]); err != nil {
		return err
	}
	var err error
	if m.buffers[b], err = dev.Alloc(n); err != nil {
		return fmt.Errorf("activations (%s) take %d MiB of GPU memory: %w", b, n>>20, err)
	}
	return nil
}

// addresses fills in where launches find it.
func (m *memory) addresses(a *addresses) {
	a.cache, a.sampleWork, a.attentionWork = m.cache.Ptr(), m.sampleWork.Ptr(), m.attentionWork.Ptr()
	if m.widened != nil {
		a.widened = m.widened.Ptr()
	}
	for i, b := range m.buffers {
		if b != nil {
			a.buffers[i] = b.Ptr()
		}
	}
}

func (m *memory) free() error {
	var errs []error
	for _, b := range append([]*cuda.Buffer{m.cache, m.sampleWork, m.attentionWork, m.widened}, m.buffers[:]...) {
		errs = append(errs, free(b))
	}
	return cmp.Or(errs...)
}

// free frees what was allocated, if it was.
func free[T any, P interface {
	*T
	Free() error
}](p P) error {
	if p == nil {
		return nil
	}
	return p.Free()
}
