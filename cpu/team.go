package cpu

/*
#include "kernels.h"
*/
import "C"

import (
	"fmt"
	"runtime"
	"unsafe"

	"gpt2scope/weights"
)

// Team is threads that compute on arrays and matrices, without a model. One call at a time runs on them; others wait.
type Team struct {
	pool *pool
	past int64 // bytes of inputs and results from which on these are stored past the caches; 0 for never
}

// Team returns the backend's threads. They end with the backend.
func (b *Backend) Team() *Team {
	return &Team{b.pool, pastCaches(caches("/sys", allowedCPUs(), b.pool.threads))}
}

// manyBytes are more than stores through the caches are good for, on processors with a larger last cache too: others
// use that as well, and a line is read before it is written.
const manyBytes = 32 << 20

// pastCaches returns from how many bytes on results are stored past the caches, 0 if the caches are not known: those
// that fit in none, and those of more than manyBytes but for caches of the threads alone. On 16 cores of a Xeon with
// 300 MiB in its last cache sums of more than 24 MiB became a tenth faster or more, of 384 MiB twice as fast.
func pastCaches(levels []Cache) int64 {
	if len(levels) == 0 {
		return 0
	}
	last, own := levels[len(levels)-1].Bytes, int64(0)
	if len(levels) > 1 {
		own = levels[len(levels)-2].Bytes
	}
	return min(last, max(own, manyBytes))
}

// Threads returns how many threads the team has.
func (t *Team) Threads() int { return t.pool.threads }

// Memory is host memory outside the Go heap, aligned to a page, and from 4 MiB on on huge pages where the system has
// them. It is zero at first.
type Memory struct{ data mem[float32] }

// NewMemory allocates so many bytes, rounded up to a whole float32.
func NewMemory(bytes int64) (*Memory, error) {
	data, err := alloc[float32](int((bytes + 3) / 4))
	if err != nil {
		return nil, err
	}
	return &Memory{data}, nil
}

// Bytes returns the memory, which must not be used after Free.
func (m *Memory) Bytes() []byte {
	return unsafe.Slice((*byte)(m.data.void()), 4*m.data.n)
}

// Free frees the memory. Again, it does nothing.
func (m *Memory) Free() {
	m.data.free()
	m.data = mem[float32]{}
}

// Place makes the system give memory of NewMemory its pages now, each near the thread whose share of an array it holds.
// It writes numbers.
func (t *Team) Place(m *Memory) { t.pool.fill(m.data) }

// Add computes z = x + y.
func (t *Team) Add(z, x, y []float32) error {
	if len(x) != len(z) || len(y) != len(z) {
		return fmt.Errorf("Add: arrays of %d, %d and %d values; they must have the same number", len(z), len(x), len(y))
	}
	return t.array(C.GS_ARRAY_ADD, z, unsafe.Pointer(unsafe.SliceData(x)), y, len(x), 12)
}

// Square computes z = x^2.
func (t *Team) Square(z, x []float32) error {
	if len(x) != len(z) {
		return fmt.Errorf("Square: arrays of %d and %d values; they must have the same number", len(z), len(x))
	}
	return t.array(C.GS_ARRAY_SQUARE, z, unsafe.Pointer(unsafe.SliceData(x)), nil, len(x), 8)
}

// array runs one of gs_array's loops over n values of so many bytes, 0 if the result is not stored past the caches.
func (t *Team) array(what C.int, z []float32, x unsafe.Pointer, y []float32, n, bytes int) error {
	if n == 0 {
		return nil
	}
	t.pool.mu.Lock()
	defer t.pool.mu.Unlock()
	if t.pool.c == nil {
		return errTeamClosed
	}
	past := flag(t.past > 0 && int64(n*bytes) > t.past)
	C.gs_array(t.pool.c, what, (*C.float)(unsafe.SliceData(z)), x, (*C.float)(unsafe.SliceData(y)), C.int64_t(n),
		C.int(past))
	return nil
}

var errTeamClosed = fmt.Errorf("the threads have ended")

// SumBlock is how many values the partial sums of [Team.Sum] are of.
const SumBlock = C.GS_ARRAY_BLOCK

// Sum adds all values: those of each block of [SumBlock] in float32, then the blocks in float64, in an order that does
// not depend on the number of threads. partial is memory for the sums of the blocks, at least one for each.
func (t *Team) Sum(x, partial []float32) (float32, error) {
	blocks := (len(x) + SumBlock - 1) / SumBlock
	if len(partial) < blocks {
		return 0, fmt.Errorf("Sum: room for %d partial sums; %d values need %d", len(partial), len(x), blocks)
	}
	err := t.array(C.GS_ARRAY_SUMS, partial, unsafe.Pointer(unsafe.SliceData(x)), nil, len(x), 0)
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for _, p := range partial[:blocks] {
		sum += float64(p)
	}
	return float32(sum), nil
}

// Widen computes z = x, which is bfloat16.
func (t *Team) Widen(z []float32, x []uint16) error {
	if len(x) != len(z) {
		return fmt.Errorf("Widen: arrays of %d and %d values; they must have the same number", len(z), len(x))
	}
	return t.array(C.GS_ARRAY_WIDEN, z, unsafe.Pointer(unsafe.SliceData(x)), nil, len(x), 0)
}

// Product is C = A B^T of matrices (M, K), (N, K) and (M, N), by the products of the engine. A and C are float32; B is
// float32 or bfloat16, and is packed first.
type Product struct {
	team    *Team
	m, n, k int
	dtype   dtype
	store   *arena
	w       *weight
	program *program
	a, c    mem[float32]
}

// NewProduct prepares a product. a and c are memory of its own, of at least 4 M K and 4 M N bytes.
func (t *Team) NewProduct(m, n, k int, d weights.DType, a, c *Memory) (*Product, error) {
	if m < 1 || n < 1 || k < 1 || m > 1<<20 || n > 1<<20 || k > 1<<20 {
		return nil, fmt.Errorf("a product of %d x %d x %d is not possible", m, n, k)
	}
	if a.data.n < m*k || c.data.n < m*n {
		return nil, fmt.Errorf("a product of %d x %d x %d: matrices of %d and %d values are too small",
			m, n, k, a.data.n, c.data.n)
	}
	p := &Product{team: t, m: m, n: n, k: k, dtype: float32Type, a: a.data, c: c.data}
	if d == weights.BF16 {
		p.dtype = bfloat16Type
	}
	var err error
	if p.store, err = newArena(weightBytes(k, n, p.dtype, false) + 64); err != nil {
		return nil, err
	}
	if p.w, err = newWeight(p.store, k, n, p.dtype, false); err == nil {
		if p.program, err = newProgram(t.pool, 1); err == nil {
			err = p.program.linear(linearStep{x: matrix(p.a, k), y: matrix(p.c, n), w: p.w, M: m})
		}
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Pack takes B over, (N, K) values by rows, float32 or bfloat16 as the product was made.
func (p *Product) Pack(b []byte) error {
	_, err := p.w.pack(p.team.pool, b, p.dtype, true, 0, p.n)
	return err
}

// Run multiplies A with what was packed last.
func (p *Product) Run() error {
	done, err := p.program.run(0, p.program.n, mem[int64]{})
	if err == nil && !done {
		err = errTeamClosed
	}
	runtime.KeepAlive(p)
	return err
}

// Close frees the packed matrix.
func (p *Product) Close() {
	if p.program != nil {
		p.program.free()
		p.program = nil
	}
	if p.store != nil {
		p.store.free()
		p.store = nil
	}
}
