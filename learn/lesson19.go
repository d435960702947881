package learn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"gpt2scope/cuda"
	"gpt2scope/internal/chart"
)

var lesson19 = Lesson{
	Number: 19,
	Claim:  "kernels return nothing; threads of a block share memory; blocks run in any order",
	GPU: &Experiment{Run: onGPU(blocksOnGPU), Judge: judgeBlocks,
		Picture: curves("When each started", linear("number"), linear("turn"), func(d Data) []chart.Series {
			all := medians("turn")(d)
			for i := range all {
				all[i].Kind = chart.Measured // lines would cover one another
			}
			return all
		})},
	Why: `A launch only queues work, so nobody waits for a return value: results go to memory. A block starts when an
SM has room for it, at first roughly by number, later as others end. This freedom lets one program fill a small GPU
and a large one. Its price: no block may wait for one that may not have started, unless a cooperative launch
guarantees that all run at once. Within a block, threads share fast memory and meet at barriers, so a sum in shared
memory can add in a fixed order and give the same bits each time. Atomics add in the order of arrival. Floating-point
addition is not associative, so their last bits differ from run to run. Goroutines are alike: a go statement has no
value, their order is free, and what they add to one variable arrives in any order.`,
	GoOn: "infer trace show sample:eager --by kernel",
}

// The cases of lesson 19.
const (
	inParts  = "sum in parts, fixed order"
	asItCame = "sum as it comes, atomics"
	returns  = "a kernel that returns int"
)

func launchCase(i int) string { return fmt.Sprintf("launch %d", i+1) }

const blockLaunches = 3

func blocksOnGPU(g *gpu) {
	text := source("lesson19.cu")
	err := attempt(func() {
		g.compile("returns.cu", strings.Replace(text, "__global__ void", "__global__ int", 1))
	})
	if refused := new(cuda.CompileError); errors.As(err, &refused) {
		g.say(returns, "outcome", strings.TrimSpace(refused.Log))
	} else {
		check(err)
		g.say(returns, "outcome", "it compiles")
	}
	kernels := g.kernels("lesson19.cu", "order", "sum_shared", "sum_atomic")
	threads := g.pick(1024, 32)
	blocks := g.pick(4, 1) * g.Device.Info().Processors // twice as many as fit at once
	turns, turn := g.buffer(int64(4*blocks)), g.buffer(4)
	for i := range blockLaunches {
		check(g.Stream.Set(turn, 0, 0, 4))
		g.launch(kernels[0], blocks, threads, turns, turn)
		g.wait()
		out := g.read(turns, 4*blocks)
		for block := range blocks {
			g.add(launchCase(i), "turn", float64(block), float64(binary.LittleEndian.Uint32(out[4*block:])))
		}
	}

	random := rand.New(rand.NewPCG(19, 19))
	x, want := make([]float32, g.elements(g.pick(1<<22, 1<<12), 4)), 0.0
	for i := range x {
		x[i] = 2*random.Float32() - 1
		want += float64(x[i])
	}
	n, parts := int32(len(x)), 4*g.Device.Info().Processors
	numbers, sums, sum := g.buffer(int64(4*n)), g.buffer(int64(4*parts)), g.buffer(4)
	check(numbers.Write(0, cuda.Encode(x, cuda.F32)))
	adding := func(of string, f func()) way {
		return way{of: of, run: func() float64 {
			check(g.Stream.Set(sum, 0, 0, 4))
			t := g.timeUs(f)
			got := cuda.Decode(g.read(sum, 4), cuda.F32)[0]
			g.add(of, "sum_error", 0, math.Abs(float64(got)-want))
			g.add(of, "sum_bits", 0, float64(math.Float32bits(got))) // by which equal sums are known
			return t
		}}
	}
	g.inTurns(g.pick(21, 7),
		adding(inParts, func() {
			g.launch(kernels[1], parts, 256, sums, numbers, n)
			g.launch(kernels[1], 1, 256, sum, sums, int32(parts))
		}),
		adding(asItCame, func() { g.launch(kernels[2], parts, 256, sum, numbers, n) }))
}

func judgeBlocks(d Data) Finding {
	// Of each launch: how many blocks started before one of a lower number, and how many turns changed.
	var late, changed []float64
	blocks := 0
	for i := range blockLaunches {
		turns, before := d.values(launchCase(i), "turn"), d.values(launchCase(i-1), "turn")
		if blocks = len(turns); blocks == 0 {
			return undecided("The order of starts was not measured.")
		}
		out, moved, last := 0.0, 0.0, -1.0 // last is the latest turn of the lower numbers
		for k, t := range turns {
			if t < last {
				out++
			}
			last = max(last, t)
			if k < len(before) && before[k] != t {
				moved++
			}
		}
		late = append(late, out)
		if i > 0 {
			changed = append(changed, moved)
		}
	}
	distinct := func(of string) int {
		return len(slices.Compact(slices.Sorted(slices.Values(d.values(of, "sum_bits")))))
	}
	fixed, loose, outcome := distinct(inParts), distinct(asItCame), d.text(returns, "outcome")
	wrong := figureOf("sum in a fixed order: error", "", d.values(inParts, "sum_error"))
	f := Finding{Figures: []Figure{
		exact("blocks in a launch", "", float64(blocks)),
		figureOf("of them, started before one of a lower number", "", late),
		figureOf("of them, turn changed in the next launch", "", changed),
		figureOf("sum in a fixed order: time", "us", d.values(inParts, "time_us")),
		exact("sum in a fixed order: different results", "", float64(fixed)),
		figureOf("sum by atomics: time", "us", d.values(asItCame, "time_us")),
		exact("sum by atomics: different results", "", float64(loose)),
		wrong,
	}}
	ordered := slices.Max(late) == 0 // one launch out of order is enough to show that nothing keeps the order
	start := "The blocks do not start in the order of their numbers."
	if ordered {
		start = "The blocks start in the order of their numbers."
	}
	compiled := outcome == "it compiles"
	refusal := "A kernel that returns a value compiles."
	if !compiled {
		refusal = "The compiler refuses a kernel that returns a value: " + firstError(outcome) + "."
	}
	f.Text = fmt.Sprintf("%s The same %d sums give %s in a fixed order and %s by atomics. %s", start,
		len(d.values(inParts, "sum_bits")), countOf(fixed, "result"), countOf(loose, "result"), refusal)
	return f.decide(
		rule{Refuted, wrong.Value >= 1 || fixed != 1, "The sum in parts is wrong, or differs from run to run."},
		rule{Refuted, ordered || compiled, ""},
		rule{Shown, outcome != "", ""})
}

// firstError returns the text of the first error that a compiler printed.
func firstError(log string) string {
	if _, text, ok := strings.Cut(log, "error: "); ok {
		log = text
	}
	line, _, _ := strings.Cut(log, "\n")
	return strings.TrimSpace(line)
}
