package learn

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gpt2scope/cuda"
	"gpt2scope/internal/chart"
	"gpt2scope/internal/humanize"
)

//go:embed lesson19.cu
var blocksSource string

var lesson19 = Lesson{
	Number: 19,
	Claim:  "kernels return nothing; threads of a block share memory; blocks run in any order",
	CPU:    &Experiment{Run: blocksOnCPU, Judge: judgeBlocks, Picture: drawBlocks},
	GPU: &Experiment{Run: onGPU(blocksOnGPU), Judge: judgeBlocks, Picture: drawBlocks,
		Sources: []Source{{"lesson19.cu", blocksSource}}},
	Why: `A launch only queues work, so nobody waits for a return value: results go to memory. A block starts when an
SM has room for it, at first roughly by number, later as others end. This freedom lets one program fill a small GPU
and a large one. Its price: no block may wait for one that may not have started, unless a cooperative launch
guarantees that all run at once. Within a block, threads share fast memory and meet at barriers, so a sum in shared
memory can add in a fixed order and give the same bits each time. Atomics add in the order of arrival. Floating-point
addition is not associative, so their last bits differ from run to run. Goroutines are alike: a go statement has no
value, their order is free, and what they add to one variable arrives in any order.`,
	GoOn: "infer bench kernel ln_1 -m random:gpt2 --device cuda",
}

// The cases of lesson 19. A unit is a block, or a goroutine.
const (
	inParts  = "sum in parts, fixed order"
	asItCame = "sum as it comes, atomics"
	returns  = "a kernel that returns int"
)

func launchCase(i int) string { return fmt.Sprintf("launch %d", i+1) }

const blockLaunches = 3

// randomFloats returns numbers from -1 to 1, the same each time, and their sum.
func randomFloats(n int) (x []float32, sum float64) {
	random := rand.New(rand.NewPCG(19, 19))
	x = make([]float32, n)
	for i := range x {
		x[i] = 2*random.Float32() - 1
		sum += float64(x[i])
	}
	return x, sum
}

// addSum adds the error of a sum, and its bits, by which equal sums are known.
func (d *Data) addSum(of string, got float32, want float64) {
	d.add(of, "sum_error", 0, math.Abs(float64(got)-want))
	d.add(of, "sum_bits", 0, float64(math.Float32bits(got)))
}

func blocksOnGPU(ctx context.Context, e *Env, g *gpu) (d Data, err error) {
	var refused *cuda.CompileError
	g.kernels(Source{"returns.cu", strings.Replace(blocksSource, "__global__ void", "__global__ int", 1)})
	switch {
	case g.err == nil:
		d.say(returns, "outcome", "it compiles")
	case errors.As(g.err, &refused):
		d.say(returns, "outcome", strings.TrimSpace(refused.Log))
		g.err = nil
	}
	kernels := g.kernels(Source{"lesson19.cu", blocksSource}, "order", "sum_shared", "sum_atomic")
	const startSize = 16 // of a start in the source
	threads := e.pick(1024, 32)
	blocks := e.pick(4, 1) * g.Device.Info().Processors // twice as many as fit at once
	starts := g.buffers(1, int64(startSize*blocks))
	turns := g.buffers(1, 4)
	n := g.elements(e.pick(1<<22, 1<<12), 4)
	numbers := g.buffers(1, int64(4*n))
	parts := 4 * g.Device.Info().Processors
	sums := g.buffers(1, int64(4*(parts+1)))
	if g.err != nil {
		return nil, g.err
	}
	for i := range blockLaunches {
		if err := errors.Join(g.Stream.Set(turns[0], 0, 0, 4), kernels[0].Launch(g.Stream, line(blocks, threads), starts[0], turns[0]), g.Stream.Synchronize()); err != nil {
			return nil, err
		}
		out := make([]byte, startSize*blocks)
		if err := starts[0].Read(0, out); err != nil {
			return nil, err
		}
		for block := range blocks {
			d.add(launchCase(i), "turn", float64(block), float64(binary.LittleEndian.Uint32(out[startSize*block:])))
			d.add(launchCase(i), "sm", float64(block), float64(binary.LittleEndian.Uint32(out[startSize*block+4:])))
		}
	}

	x, want := randomFloats(n)
	if err := numbers[0].Write(0, cuda.Encode(x, cuda.F32)); err != nil {
		return nil, err
	}
	total := sums[0].Ptr() + cuda.Ptr(4*parts)
	ways := []string{inParts, asItCame}
	err = inTurns(ctx, &d, ways, e.pick(21, 7), func(i int) (float64, error) {
		if err := g.Stream.Set(sums[0], int64(4*parts), 0, 4); err != nil {
			return 0, err
		}
		t, err := g.timeUs(func() error {
			if i == 1 {
				return kernels[2].Launch(g.Stream, line(parts, 256), total, numbers[0], int32(n))
			}
			return errors.Join(kernels[1].Launch(g.Stream, line(parts, 256), sums[0], numbers[0], int32(n)),
				kernels[1].Launch(g.Stream, line(1, 256), total, sums[0], int32(parts)))
		})
		if err != nil {
			return 0, err
		}
		got := make([]byte, 4)
		err = sums[0].Read(int64(4*parts), got)
		d.addSum(ways[i], cuda.Decode(got, cuda.F32)[0], want)
		return t, err
	})
	return d, err
}

func blocksOnCPU(ctx context.Context, e *Env) (d Data, err error) {
	goroutines := e.pick(256, 16)
	for i := range blockLaunches {
		turns := make([]int64, goroutines)
		var turn atomic.Int64
		var all sync.WaitGroup
		for k := range goroutines {
			all.Go(func() { turns[k] = turn.Add(1) - 1 })
		}
		all.Wait()
		for k, t := range turns {
			d.add(launchCase(i), "turn", float64(k), float64(t))
		}
	}
	x, want := randomFloats(e.pick(1<<20, 1<<12))
	parts := make([]float32, 16*runtime.GOMAXPROCS(0))
	ways := []string{inParts, asItCame}
	err = inTurns(ctx, &d, ways, e.pick(21, 7), func(i int) (float64, error) {
		start := time.Now()
		var bits atomic.Uint32 // of the float that all add to
		var all sync.WaitGroup
		for k := range parts {
			all.Go(func() {
				part := x[k*len(x)/len(parts) : (k+1)*len(x)/len(parts)]
				if i == 0 {
					var s float32
					for _, v := range part {
						s += v
					}
					parts[k] = s
					return
				}
				// Each number alone would spend all time on the one word, so a few are added up first.
				for len(part) > 0 {
					var s float32
					few := part[:min(64, len(part))]
					for _, v := range few {
						s += v
					}
					part = part[len(few):]
					for {
						was := bits.Load()
						if bits.CompareAndSwap(was, math.Float32bits(math.Float32frombits(was)+s)) {
							break
						}
					}
					runtime.Gosched()
				}
			})
		}
		all.Wait()
		sum := math.Float32frombits(bits.Load())
		if i == 0 {
			for _, p := range parts {
				sum += p
			}
		}
		t := us(time.Since(start))
		d.addSum(ways[i], sum, want)
		return t, nil
	})
	return d, err
}

// distinct counts different values.
func distinct(values []float64) int {
	seen := map[float64]bool{}
	for _, v := range values {
		seen[v] = true
	}
	return len(seen)
}

func judgeBlocks(d Data) Finding {
	var late, changed, units []float64
	for i := range blockLaunches {
		turns := d.values(launchCase(i), "turn")
		before := d.values(launchCase(max(0, i-1)), "turn")
		out, moved, last := 0, 0, -1.0 // last is the latest turn of the lower numbers
		for k, t := range turns {
			if t < last {
				out++
			}
			last = max(last, t)
			if k < len(before) && before[k] != t {
				moved++
			}
		}
		if len(turns) == 0 {
			return undecided("The order of starts was not measured.")
		}
		late, units = append(late, float64(out)), append(units, float64(len(turns)))
		if i > 0 {
			changed = append(changed, float64(moved))
		}
	}
	unit, compiled := "goroutines", true
	if outcome := d.text(returns, "outcome"); outcome != "" {
		unit, compiled = "blocks", outcome == "it compiles"
	}
	fixed, loose := figureOf("sum in a fixed order: time", "us", d.values(inParts, "time_us")), figureOf("sum by atomics: time", "us", d.values(asItCame, "time_us"))
	fixedSums, looseSums := distinct(d.values(inParts, "sum_bits")), distinct(d.values(asItCame, "sum_bits"))
	wrong := figureOf("sum in a fixed order: error", "", d.values(inParts, "sum_error"))
	f := Finding{Figures: []Figure{exact(unit+" in a launch", "", units[0]), figureOf("of them, started before one of a lower number", "", late), figureOf("of them, turn changed in the next launch", "", changed),
		fixed, exact("sum in a fixed order: different results", "", float64(fixedSums)), loose, exact("sum by atomics: different results", "", float64(looseSums)), wrong}}
	f.Text = fmt.Sprintf("The %s do not start in the order of their numbers. The same %d sums give %s in a fixed order and %s by atomics.",
		unit, len(d.values(inParts, "sum_bits")), countOf(fixedSums, "result"), countOf(looseSums, "result"))
	ordered := slices.Max(late) == 0 // one launch out of order is enough to show that nothing keeps the order
	if ordered {
		f.Text = strings.Replace(f.Text, "do not start", "start", 1)
	}
	shared := wrong.Value < 1 && fixedSums == 1
	if unit == "blocks" {
		if compiled {
			f.Text += " A kernel that returns a value compiles."
		} else {
			f.Text += " The compiler refuses a kernel that returns a value: " + firstError(d.text(returns, "outcome")) + "."
		}
	} else {
		compiled = false // a go statement has no value: such a program cannot be written
	}
	if !shared {
		f.Text += " The sum in parts is wrong, or differs from run to run."
	}
	if f.Verdict = Shown; ordered || !shared || compiled {
		f.Verdict = Refuted
	}
	return f
}

// firstError returns the text of the first error that a compiler printed.
func firstError(log string) string {
	if _, text, ok := strings.Cut(log, "error: "); ok {
		log = text
	}
	line, _, _ := strings.Cut(log, "\n")
	return strings.TrimSpace(line)
}

// countOf writes a number of things: "1 result", "3 results".
func countOf(n int, what string) string { return humanize.Count(n, what, what+"s") }

func drawBlocks(d Data) chart.Picture {
	all := d.medians("turn", d.cases("turn")...)
	for i := range all {
		all[i].Kind = chart.Measured // lines would cover one another
	}
	return curves("When each started", linear("number"), linear("turn"), all...)
}
