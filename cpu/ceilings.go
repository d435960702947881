package cpu

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"
)

// Rate is a rate that was measured in several rounds: the best of their medians, and
// the range of the middle 80% of all repetitions.
type Rate struct {
	Value, P10, P90 float64
	How             string // which of several ways gave it
}

// ReadRate is the bandwidth of reading, over and over, data of some size.
type ReadRate struct {
	Rate         // bytes per second
	Name  string // "L2 cache", "memory"
	Data  int64  // bytes that were read, by all threads together
	Bound int64  // it holds for data of up to so many bytes; 0 for any
}

// Ceilings are the most that the threads of a [Backend] were measured to do.
type Ceilings struct {
	Read    []ReadRate // by rising Bound, memory last
	F32     Rate       // FLOP/s
	BF16    Rate       // FLOP/s of bfloat16 products; 0 where the kernels have none, and widen such weights
	Barrier Rate       // seconds

	// Had is the share of the processor time that the threads got, of what as many
	// cores have: well below 1, other work ran meanwhile, and rates are too low.
	Had float64
}

// measureEffort is how long and how often is measured.
type measureEffort struct {
	rounds int
	round  time.Duration // of one way
	memory int64         // data that memory is measured with, where the caches are not known
	data   int64         // the most data that matters, 0 for any
}

// defaultEffort takes about 2 seconds.
var defaultEffort = measureEffort{rounds: 5, round: 15 * time.Millisecond, memory: 1 << 30}

// Ceilings measures what the backend's threads can do, with nothing else running on
// them. It takes a few seconds, and up to a quarter of the memory that is free.
//
// Bandwidths are the higher of a plain read and of the matrix-vector product that a
// decode step consists of, each thread on its own share of the data. Data of half a
// cache's size gives the rate of the cache. Data of twice its size may still be found
// there in part, as no cache drops exactly what was used longest ago; up to there the
// rate is that of data of just the cache's size.
//
// Where data is positive, bandwidths are measured only as far as data of so many bytes
// reaches.
func (b *Backend) Ceilings(ctx context.Context, data int64) (Ceilings, error) {
	effort := defaultEffort
	effort.data = data
	return b.pool.ceilings(ctx, caches("/sys", allowedCPUs(), b.pool.threads), availableMemory("/proc", "/sys"), effort)
}

// Threads returns how many threads run.
func (b *Backend) Threads() int { return b.pool.threads }

// readPoint is a working set that reading is measured with.
type readPoint struct {
	name        string
	data, bound int64
}

// readPoints says what to measure: the caches but the first, which nothing but
// activations fits in, and memory; of these, as many as data of a size needs, all for 0.
func readPoints(levels []Cache, available, memory, data int64) ([]readPoint, error) {
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
	if i := slices.IndexFunc(points, func(p readPoint) bool { return data > 0 && p.bound >= data }); i >= 0 {
		return points[:i+1], nil
	}
	if last > 0 {
		memory = max(2*last, 256<<20)
	}
	if available > 0 && memory > available/4 {
		memory = available / 4
	}
	if memory < max(least, 2*last) {
		return nil, fmt.Errorf("the bandwidth of memory cannot be measured: %d MiB may be used for it, and caches of %d MiB hide it below %d MiB", memory>>20, last>>20, 2*last>>20)
	}
	return append(points, readPoint{"memory", memory, 0}), nil
}

func (p *pool) ceilings(ctx context.Context, levels []Cache, available int64, effort measureEffort) (Ceilings, error) {
	var c Ceilings
	points, err := readPoints(levels, available, effort.memory, effort.data)
	if err != nil {
		return c, err
	}
	r, err := newReader(p, points[len(points)-1].data)
	if err != nil {
		return c, err
	}
	defer r.free()
	began, used := time.Now(), processTime()
	for _, point := range points {
		gemv, err := r.gemv(point.data)
		if err != nil {
			return c, err
		}
		rate, err := best(ctx, effort, true,
			way{"a plain read", func() float64 { return p.measureRead(r.data.part(0, int(point.data/4))) }},
			way{"the matrix-vector product", gemv.rate})
		gemv.free()
		if err != nil {
			return c, err
		}
		c.Read = append(c.Read, ReadRate{rate, point.name, point.data, point.bound})
	}
	// Rates fall with size. Where noise says otherwise, the higher one is a bound for both.
	for i := len(c.Read) - 2; i >= 0; i-- {
		if next := c.Read[i+1].Rate; c.Read[i].Value < next.Value {
			c.Read[i].Rate = next
		}
	}
	tiles, chains := calls(registerTile.measure(p)), calls(multiplyAdds.measure(p))
	if c.F32, err = best(ctx, effort, true, way{"the register tile of the products, from the first-level cache", tiles}, way{"multiply-adds between registers", chains}); err != nil {
		return c, err
	}
	if p.isa.multipliesBF16() {
		if c.BF16, err = best(ctx, effort, true, way{"the register tile of the bfloat16 products, from the first-level cache", calls(registerTileBF16.measure(p))}); err != nil {
			return c, err
		}
	}
	c.Barrier, err = best(ctx, effort, false, way{"barriers in a row", func() float64 { return p.measureBarrier(1000) }})
	c.Had = float64(processTime()-used) / float64(max(1, time.Since(began))) / float64(p.threads)
	return c, err
}

// processTime is the processor time that this process has used.
func processTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// calls returns a measurement that takes about half a millisecond.
func calls(measure func(count int) float64) func() float64 {
	n := 1
	for {
		start := time.Now()
		if measure(n); time.Since(start) > 500*time.Microsecond || n > 1<<40 {
			return func() float64 { return measure(n) }
		}
		n *= 2
	}
}

// way is one way to measure a rate.
type way struct {
	name string
	rate func() float64
}

// best measures in rounds, in each all ways in turn, after one that warms up. It takes
// the highest median of a round where high rates are good, else the lowest.
func best(ctx context.Context, effort measureEffort, high bool, ways ...way) (Rate, error) {
	var out Rate
	all := map[string][]float64{}
	for round := range effort.rounds + 1 {
		for _, w := range ways {
			var values []float64
			for start := time.Now(); len(values) < 3 || time.Since(start) < effort.round && len(values) < 10000; {
				if ctx.Err() != nil {
					return out, context.Cause(ctx)
				}
				values = append(values, w.rate())
			}
			if round == 0 {
				continue
			}
			slices.Sort(values)
			m := values[len(values)/2]
			if out.How == "" || (m > out.Value) == high {
				out.Value, out.How = m, w.name
			}
			all[w.name] = append(all[w.name], values...)
		}
	}
	sorted := all[out.How]
	slices.Sort(sorted)
	at := func(q float64) float64 { return sorted[int(q*float64(len(sorted)-1)+0.5)] }
	out.P10, out.P90 = at(0.1), at(0.9)
	return out, nil
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
