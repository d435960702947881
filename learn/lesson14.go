package learn

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"gpt2scope/cuda"
	"gpt2scope/internal/chart"
)

//go:embed lesson14.cu
var reuseSource string

var lesson14 = Lesson{
	Number: 14,
	Claim:  "when the transfer takes longer than the computation, use unified memory",
	GPU: &Experiment{Run: onGPU(runReuse), Judge: judgeReuse, Picture: drawReuse,
		Sources: []Source{{"lesson14.cu", reuseSource}}},
	Why: `The bytes have to cross the link, whatever the call is named. A copy moves them once, and every reading
after it comes from device memory. Reading in place, here from pinned host memory, moves them again each time. Unified
memory lies between: pages move when they are first touched, by page faults, and then stay, so it is a copy in small
pieces unless the program prefetches them. (No experiment here uses it.) So the API does not decide, but how often the
data are read before they change. The first reading pays for the link either way; each further one pays again in
place, and not after a copy, long before the computation takes as long as the transfer. Ask first whether the data
have to move at all: weights stay on the device for all tokens.`,
	GoOn: "infer bench ceilings --device cuda",
}

// The cases of lesson 14.
const (
	oneCopy  = "copy alone"
	resident = "read from the device"
	copyRead = "copy, then read"
	inPlace  = "read in place"
)

func runReuse(ctx context.Context, e *Env, g *gpu) (d Data, err error) {
	kernels := g.kernels(Source{"lesson14.cu", reuseSource}, "add_up")
	n := g.elements(e.pick(1<<24, 1<<10), 4)
	n &^= 3
	bytes := int64(4 * n)
	host := g.host(bytes)
	b := g.buffers(1, bytes)
	sum := g.buffers(1, 4)
	if g.err != nil {
		return nil, g.err
	}
	read := func(from cuda.Ptr, times int) error {
		for range times {
			if err := kernels[0].Launch(g.Stream, line(8*g.Device.Info().Processors, 256), sum[0], from, int64(n/4)); err != nil {
				return err
			}
		}
		return nil
	}
	copied := func() error { return g.Stream.CopyToDevice(b[0], 0, host, 0, bytes) }
	reuses := []int{1, 2, 3, 5, 10, 20, 50, 100}
	if e.Quick {
		reuses = reuses[:2]
	}
	d.add("all", "bytes", 0, float64(bytes))
	ways := []string{oneCopy, resident, copyRead, inPlace}
	for _, reuse := range reuses {
		var turns Data
		err = inTurns(ctx, &turns, ways, 7, func(i int) (float64, error) {
			return g.timeUs(func() error {
				switch ways[i] {
				case oneCopy:
					return copied()
				case resident:
					return read(b[0].Ptr(), reuse)
				case copyRead:
					return errors.Join(copied(), read(b[0].Ptr(), reuse))
				}
				return read(host.Ptr(), reuse)
			})
		})
		if err != nil {
			return nil, err
		}
		for _, p := range turns {
			d.add(p.Case, p.Quantity, float64(reuse), p.Value)
		}
	}
	return d, nil
}

func judgeReuse(d Data) Finding {
	reuses := d.xs(copyRead, "time_us")
	if len(reuses) < 2 {
		return undecided("Fewer than two numbers of readings were measured.")
	}
	f := Finding{Verdict: Shown}
	from, until := 0.0, 0.0 // the first number of readings at which a copy is faster, the last at which the transfer takes longer than the computation
	for _, r := range reuses {
		if median(d.at(oneCopy, "time_us", r)) <= median(d.at(resident, "time_us", r)) {
			continue // the claim says nothing about this
		}
		until = r
		x := figureOf(countOf(int(r), "reading")+": in place over copy, then read", "x", ratios(d.at(inPlace, "time_us", r), d.at(copyRead, "time_us", r)))
		f.Figures = append(f.Figures, x)
		switch low, high := x.interval(); {
		case low > 1:
			f.Verdict = Refuted
			if from == 0 {
				from = r
			}
		case high >= 1 && f.Verdict == Shown:
			f.Verdict = Unknown
		}
	}
	if until == 0 {
		return undecided("The transfer never took longer than the computation, so the claim says nothing here.")
	}
	first := reuses[0]
	transfer, compute := figureOf("transfer: a copy to the device", "us", d.at(oneCopy, "time_us", first)), figureOf("computation: 1 reading on the device", "us", d.at(resident, "time_us", first))
	f.Figures = append([]Figure{transfer, compute}, f.Figures...)
	f.Text = fmt.Sprintf("Up to %s the transfer takes longer than the computation.", countOf(int(until), "reading"))
	if from > 0 {
		f.Text += fmt.Sprintf(" Yet from %s on, copying first is faster than reading the data in place.", countOf(int(from), "reading"))
	} else {
		f.Text += " A copy before is not faster than reading in place."
	}
	return f
}

func drawReuse(d Data) chart.Picture {
	return curves("The same numbers, read several times", log("readings"), log("time (us)"), d.medians("time_us", inPlace, copyRead, resident)...)
}
