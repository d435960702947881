package learn

// #include "lessons.h"
import "C"

import (
	"fmt"
	"unsafe"

	"gpt2scope/cuda"
)

var lesson14 = Lesson{
	Number: 14,
	Claim:  "when the transfer takes longer than the computation, let the kernel read the host's memory in place (zero-copy)",
	GPU: &Experiment{Run: onGPU(runReuse), Judge: judgeReuse,
		Picture: curves("The same numbers, read several times", log("readings"), log("time (us)"),
			medians("time_us", inPlace, copyRead, resident))},
	Why: `The bytes have to cross the link, whatever the call is named. A copy moves them once, and every reading after
it comes from device memory. Reading in place, here from pinned host memory, moves them again each time. Unified
memory lies between: pages move when they are first touched, by page faults, and then stay, so it is a copy in small
pieces unless the program prefetches them. (--managed measures it; the verdict is about zero-copy.) So the API does not
decide, but how often the data are read before they change. The first reading pays for the link either way; each
further one pays again in place, and not after a copy, long before the computation takes as long as the transfer. Ask
first whether the data have to move at all: weights stay on the device for all tokens.`,
	GoOn: "infer trace advise sample:bad",
}

// The cases of lesson 14.
const (
	oneCopy  = "copy alone"
	resident = "read from the device"
	copyRead = "copy, then read"
	inPlace  = "read in place"

	copiedByTimer = "copy, then read, by the host's timer"
	unified       = "unified memory"
	prefetched    = "unified memory, prefetched"
)

// managedBytes is the unified memory that lesson 14 takes, of ten times as much that must be free.
const managedBytes = 64 << 20

// runManaged reads unified memory that the host wrote before, with and without a prefetch, beside a copy.
func runManaged(g *gpu, read func(from cuda.Ptr, bytes int64, times int)) {
	device := g.Device.Info().Index
	if free, _, err := g.Device.Memory(); err != nil || free < 10*managedBytes {
		check(err, fmt.Errorf("%w: --managed takes 64 MiB if ten times as much is free, and %d MiB are", errNotHere, free>>20))
	}
	var why *C.char
	p := C.learn_managed(C.int(device), managedBytes, &why)
	if p == nil {
		check(fmt.Errorf("%w: --managed: %s", errNotHere, C.GoString(why)))
	}
	defer C.learn_unmanage(p, C.int(device))
	memory, host, b := unsafe.Slice((*byte)(p), managedBytes), g.host(managedBytes), g.buffer(managedBytes)
	for _, reuse := range []int{1, 10} {
		timed := func(of string, from cuda.Ptr, before func()) way {
			return way{of: of, x: float64(reuse), run: func() float64 {
				if of != copiedByTimer {
					clear(memory) // its pages are the host's again
				}
				return timed(func() {
					before()
					read(from, managedBytes, reuse)
					g.wait()
				})
			}}
		}
		g.inTurns(7,
			timed(copiedByTimer, b.Ptr(), func() { check(g.Stream.CopyToDevice(b, 0, host, 0, managedBytes)) }),
			timed(unified, cuda.Ptr(uintptr(p)), func() {}),
			timed(prefetched, cuda.Ptr(uintptr(p)), func() {
				if failed := C.learn_prefetch(p, managedBytes, C.int(device)); failed != 0 {
					check(fmt.Errorf("%w: cuMemPrefetchAsync: error %d of the driver", errNotHere, failed))
				}
			}))
	}
}

func runReuse(g *gpu) {
	addUp := g.kernels("lesson14.cu", "add_up")[0]
	n := g.elements(g.pick(1<<24, 1<<10), 4) &^ 3
	bytes := int64(4 * n)
	host, b, sum := g.host(bytes), g.buffer(bytes), g.buffer(4)
	readAll := func(from cuda.Ptr, bytes int64, times int) {
		for range times {
			g.launch(addUp, 8*g.Device.Info().Processors, 256, sum, from, bytes/16)
		}
	}
	read := func(from cuda.Ptr, times int) { readAll(from, bytes, times) }
	copied := func() { check(g.Stream.CopyToDevice(b, 0, host, 0, bytes)) }
	reuses := []int{1, 2, 3, 5, 10, 20, 50, 100}
	if g.Quick {
		reuses = reuses[:2]
	}
	g.add("all", "bytes", 0, float64(bytes))
	for _, reuse := range reuses {
		timed := func(of string, f func()) way {
			return way{of: of, x: float64(reuse), run: func() float64 { return g.timeUs(f) }}
		}
		g.inTurns(7,
			timed(oneCopy, copied),
			timed(resident, func() { read(b.Ptr(), reuse) }),
			timed(copyRead, func() {
				copied()
				read(b.Ptr(), reuse)
			}),
			timed(inPlace, func() { read(host.Ptr(), reuse) }))
	}
	if g.Managed {
		runManaged(g, readAll)
	}
}

func judgeReuse(d Data) Finding {
	reuses := d.xs(copyRead, "time_us")
	if len(reuses) < 2 {
		return undecided("Fewer than two numbers of readings were measured.")
	}
	f := Finding{Figures: []Figure{
		figureOf("transfer: a copy to the device", "us", d.at(oneCopy, "time_us", reuses[0])),
		figureOf("computation: 1 reading on the device", "us", d.at(resident, "time_us", reuses[0])),
	}}
	// The last number of readings at which the transfer takes longer than the computation, the first at which a copy is
	// faster than reading in place, and whether some number does not tell.
	until, from, unclear := 0, 0, false
	for _, r := range reuses {
		if median(d.at(oneCopy, "time_us", r)) <= median(d.at(resident, "time_us", r)) {
			continue // the claim says nothing about this
		}
		until = int(r)
		x := figureOf(countOf(until, "reading")+": in place over copy, then read", "x",
			ratios(d.at(inPlace, "time_us", r), d.at(copyRead, "time_us", r)))
		f.Figures = append(f.Figures, x)
		low, high := x.interval()
		if low > 1 && from == 0 {
			from = until
		}
		unclear = unclear || low <= 1 && high >= 1
	}
	if until == 0 {
		return undecided("The transfer never took longer than the computation, so the claim says nothing here.")
	}
	f.Text = fmt.Sprintf("Up to %s the transfer takes longer than the computation.", countOf(until, "reading"))
	for _, r := range d.xs(unified, "time_us") {
		times := countOf(int(r), "reading")
		copied := d.at(copiedByTimer, "time_us", r)
		plain := figureOf("unified memory, "+times+", over copy, then read", "x", ratios(d.at(unified, "time_us", r), copied))
		ahead := figureOf("the same, prefetched", "x", ratios(d.at(prefetched, "time_us", r), copied))
		f.Figures = append(f.Figures, plain, ahead)
		f.Text += fmt.Sprintf(" With %s, unified memory takes %s the time of a copy before, prefetched %s.", times, plain.Short(), ahead.Short())
	}
	const never = "A copy before is not faster than reading in place."
	return f.decide(
		rule{Refuted, from > 0, fmt.Sprintf("Yet from %s on, copying first is faster than reading the data in place.",
			countOf(from, "reading"))},
		rule{Unknown, unclear, never},
		rule{Shown, true, never})
}
