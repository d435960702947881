package cpu

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"gpt2scope/ceilings"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/memory"
)

// measureEffort says how long and how often each quantity is measured.
type measureEffort struct {
	rounds ceilings.Rounds
	round  time.Duration // of one way in a round
	memory int64         // data that memory is measured with if the caches are not known
}

// defaultEffort takes about 2 seconds on an idle machine, and twice as many rounds if they differ.
var defaultEffort = measureEffort{rounds: ceilings.Rounds{Least: 6, Most: 12}, round: 12 * time.Millisecond,
	memory: 1 << 30}

// CeilingsKey returns the key of a stored set of the backend's ceilings.
func (b *Backend) CeilingsKey() (string, error) { return CeilingsKey(b.Threads(), b.ISA()), nil }

// CeilingsKey names the processor, the number of threads and the version of the kernels.
func CeilingsKey(threads int, isa string) string {
	return fmt.Sprintf("%s, %s, kernels %s", processorName(), humanize.Count(threads, "thread", "threads"), isa)
}

// Processor names the processor and the version of the kernels.
func Processor(isa string) string { return fmt.Sprintf("%s, kernels %s", processorName(), isa) }

func processorName() string {
	f, _ := DetectFeatures() // the processor's name is there in spite of an error
	if f.Model == "" {
		return f.Processor
	}
	return fmt.Sprintf("%s (%s)", f.Processor, f.Model)
}

// MeasureCeilings measures what the backend's threads can do; nothing else should run on them meanwhile. It takes a few
// seconds, and up to a quarter of the free memory.
//
// Bandwidths are the higher of a plain read and of the matrix-vector product that a decode step consists of, each
// thread on its own share of the data. Data of half a cache's size gives the rate of the cache. Data of up to twice its
// size may still be found there in part, as no cache drops exactly what was used longest ago; up to there the rate is
// that of data of just the cache's size.
//
// A copy goes from every other block of the data to the next. It counts the bytes that it reads and those that it
// writes, 8 for each float32. Stores through the caches also read each line before they write it, which does not count:
// their rate is that much lower.
func (b *Backend) MeasureCeilings(ctx context.Context) (s ceilings.Set, err error) {
	levels := caches("/sys", allowedCPUs(), b.pool.threads)
	available, _ := memory.Left()
	values, share, err := b.pool.ceilings(ctx, levels, available, defaultEffort)
	switch {
	case ctx.Err() != nil:
		return s, context.Cause(ctx)
	case err != nil:
		return s, fmt.Errorf("the ceilings of the CPU cannot be measured: %w", err)
	}
	f, _ := DetectFeatures()
	s.Device, s.Time, s.Values = f.Processor, time.Now().UTC().Truncate(time.Second), values
	if s.Judge(); share < undisturbed {
		s.Uncertainty = min(0.99, max(s.Uncertainty, 1-share))
		s.Disturbed = fmt.Sprintf("other work took %.0f%% of the processor time", 100*(1-share))
	}
	s.Key, err = b.CeilingsKey()
	return s, err
}

// undisturbed is the share of the processor time of as many cores that the threads get if nothing else runs; waiting,
// such as for pages to be cleared, takes the rest.
const undisturbed = 0.9

// Threads returns how many threads run.
func (b *Backend) Threads() int { return b.pool.threads }

// readPoint is a working set that reading is measured with.
type readPoint struct {
	name        string
	data, bound int64
}

// readPoints returns the working sets to measure: one or two for each cache but the first, which only activations fit
// in, and one for memory.
func readPoints(levels []Cache, available, memory int64) ([]readPoint, error) {
	const least = 4 << 20
	var points []readPoint
	last := int64(0) // size of the last cache
	for _, c := range levels {
		if c.Level < 2 || c.Bytes <= 2*last {
			continue
		}
		points = append(points,
			readPoint{fmt.Sprintf("L%d cache", c.Level), max(c.Bytes/2, min(2*last, c.Bytes)), c.Bytes},
			readPoint{fmt.Sprintf("L%d cache, in part", c.Level), c.Bytes, 2 * c.Bytes})
		last = c.Bytes
	}
	if last > 0 {
		memory = max(2*last, 256<<20)
	}
	if available > 0 && memory > available/4 {
		memory = available / 4
	}
	if memory < max(least, 2*last) {
		return nil, fmt.Errorf("the bandwidth of memory cannot be measured: %d MiB may be used for it, and caches of %d "+
			"MiB hide it below %d MiB", memory>>20, last>>20, 2*last>>20)
	}
	return append(points, readPoint{"memory", memory, 0}), nil
}

// ceilings measures, and returns with the values the largest share of the processor time of as many cores that the
// threads got in a round.
func (p *pool) ceilings(ctx context.Context, levels []Cache, available int64,
	effort measureEffort) (values []ceilings.Value, share float64, err error) {
	points, err := readPoints(levels, available, effort.memory)
	if err != nil {
		return nil, 0, err
	}
	r, err := newReader(p, points[len(points)-1].data)
	if err != nil {
		return nil, 0, err
	}
	defer r.free()
	way := func(name string, unit float64, value func() float64) ceilings.Way {
		return ceilings.Way{Name: name, Round: func() ([]float64, error) { return repeat(ctx, effort.round, unit, value) }}
	}
	var quantities []ceilings.Quantity
	for _, point := range points {
		gemv, err := r.gemv(point.data)
		if err != nil {
			return nil, 0, err
		}
		defer gemv.free()
		quantities = append(quantities, ceilings.Quantity{
			Value: ceilings.Value{Name: ceilings.Read, Unit: ceilings.GBs, Where: point.name, Size: point.bound},
			Ways: []ceilings.Way{
				way("a plain read", 1e9, func() float64 { return p.measureRead(r.data.part(0, int(point.data/4))) }),
				way("the matrix-vector product", 1e9, gemv.rate),
			}})
	}
	memory := points[len(points)-1]
	copied := func(past bool) func() float64 {
		return func() float64 { return p.measureCopy(past, r.data.part(0, int(memory.data/4))) }
	}
	quantities = append(quantities, ceilings.Quantity{
		Value: ceilings.Value{Name: ceilings.Copy, Unit: ceilings.GBs, Where: memory.name},
		Ways: []ceilings.Way{
			way("stores past the caches", 1e9, copied(true)),
			way("stores through the caches", 1e9, copied(false)),
		}})
	quantities = append(quantities, ceilings.Quantity{
		Value: ceilings.Value{Name: ceilings.F32, Unit: ceilings.TFLOPs},
		Ways: []ceilings.Way{
			way("the register tile of the products, from the first-level cache", 1e12, calls(registerTile.measure(p))),
		}})
	if p.isa.multipliesBF16() {
		quantities = append(quantities, ceilings.Quantity{
			Value: ceilings.Value{Name: ceilings.BF16, Unit: ceilings.TFLOPs},
			Ways: []ceilings.Way{way("the register tile of the bfloat16 products, from the first-level cache", 1e12,
				calls(registerTileBF16.measure(p)))}})
	}
	if p.isa.multipliesBytes() {
		quantities = append(quantities, ceilings.Quantity{
			Value: ceilings.Value{Name: ceilings.Int8, Unit: ceilings.TFLOPs},
			Ways: []ceilings.Way{way("the register tile of the products of bytes, from the first-level cache", 1e12,
				calls(registerTileQ8.measure(p)))}})
	}
	quantities = append(quantities, ceilings.Quantity{
		Value: ceilings.Value{Name: "barrier", Unit: ceilings.Micro},
		Ways:  []ceilings.Way{way("barriers in a row", 1e-6, calls(p.measureBarrier))}})

	// The share of each round: other work may come and go.
	began, used := time.Now(), processTime()
	rounds := effort.rounds
	rounds.Ended = func() (again bool) {
		now, total := time.Now(), processTime()
		share = max(share, float64(total-used)/float64(max(1, now.Sub(began)))/float64(p.threads))
		began, used = now, total
		return share < undisturbed
	}
	if values, err = ceilings.Measure(ctx, rounds, quantities); err != nil {
		return nil, 0, err
	}
	// Bandwidth falls with the size of the data. If noise says otherwise, the higher one bounds both.
	for i := len(points) - 2; i >= 0; i-- {
		if next := values[i+1]; values[i].Value < next.Value {
			next.Where, next.Size = values[i].Where, values[i].Size
			values[i] = next
		}
	}
	return values, share, nil
}

// processTime is the processor time that this process has used.
func processTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// calls returns a measurement that takes half a millisecond at least. It makes more calls at once as long as one takes
// less: a call that something delayed must not decide how many are made from then on, since the start of the threads
// would be most of their time.
func calls(measure func(count int) float64) func() float64 {
	n := 1
	return func() float64 {
		for {
			start := time.Now()
			value := measure(n)
			if time.Since(start) > 500*time.Microsecond || n > 1<<40 {
				return value
			}
			n *= 2
		}
	}
}

// repeat measures for a while, three times at least, and returns what was measured as multiples of a unit. The first
// measurement warms caches up and does not count.
func repeat(ctx context.Context, d time.Duration, unit float64, value func() float64) (values []float64, err error) {
	value()
	for start := time.Now(); len(values) < 3 || time.Since(start) < d && len(values) < 10000; {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		values = append(values, value()/unit)
	}
	return values, nil
}

// reader is memory to read, and what a matrix-vector product over it needs.
type reader struct {
	pool *pool
	data mem[float32]
	x    mem[float32] // (readK)
	y    mem[float32] // (columns of the largest product)
}

// readK is K of the products that read: of the order of the models' widths.
const readK = 512

func newReader(p *pool, bytes int64) (*reader, error) {
	r := &reader{pool: p}
	var err error
	if r.data, err = alloc[float32](int(bytes / 4)); err == nil {
		if r.x, err = alloc[float32](readK); err == nil {
			r.y, err = alloc[float32](roundUp(int(bytes/4)/readK + 1))
		}
	}
	if err != nil {
		r.free()
		return nil, err
	}
	p.fill(r.data)
	p.fill(r.x)
	return r, nil
}

func (r *reader) free() {
	for _, m := range []mem[float32]{r.data, r.x, r.y} {
		m.free()
	}
}

// product is a matrix-vector product whose weights fill the start of a reader's memory.
type product struct {
	program *program
	bytes   int
}

func (r *reader) gemv(bytes int64) (*product, error) {
	N := max(32, int(bytes/4)/readK/32*32)
	w := &weight{K: readK, N: N, dtype: float32Type, data: r.data.part(0, readK*N)}
	program, err := newProgram(r.pool, 1)
	if err != nil {
		return nil, err
	}
	if err := program.linear(linearStep{x: matrix(r.x, readK), y: matrix(r.y, N), w: w, M: 1}); err != nil {
		program.free()
		return nil, err
	}
	return &product{program, w.bytes()}, nil
}

func (o *product) free() { o.program.free() }

// rate runs it once, and returns bytes per second.
func (o *product) rate() float64 {
	start := now()
	if done, err := o.program.run(0, o.program.n, mem[int64]{}); err != nil || !done {
		return 0
	}
	return float64(o.bytes) / (float64(max(1, now()-start)) * 1e-9)
}
