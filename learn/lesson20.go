package learn

import (
	"errors"
	"fmt"
	"syscall"

	"gpt2scope/cuda"
	"gpt2scope/internal/chart"
	"gpt2scope/traces/window"
)

var lesson20 = Lesson{
	Number: 20,
	Claim:  "memory copies and kernels overlap",
	GPU:    &Experiment{Run: onGPU(runOverlap), Judge: judgeOverlap, Picture: drawOverlap},
	Why: `A GPU has copy engines besides its SMs, so both can work at once, under three conditions. The work is in
different streams, because a stream runs its work in order. The host memory is pinned: pageable memory goes through a
staging buffer of the driver, and meanwhile the host launches nothing. And the kernel does not need the copy that it
is to overlap with: cut the data into chunks, so that one is computed while the next one travels. Even then the whole
takes at least as long as the longest of three rows: copies in, kernels, copies back. If copies take most of the time,
hiding the kernels gains little. Better than a hidden copy is none: keep the data on the device, as a decode step
keeps weights and cache.`,
	GoOn: "infer trace report sample:bad -o page.html",
}

// The cases of lesson 20.
const (
	inOneStream  = "one stream, pinned"
	inTwoStreams = "two streams, pinned"
	pageableTwo  = "two streams, pageable"
)

var (
	overlapCases = []string{inOneStream, inTwoStreams, pageableTwo}
	chunkWork    = []string{"copy in", "kernel", "copy back"} // of each chunk, in order
)

const overlapChunks = 8

func runOverlap(g *gpu) {
	work := g.kernels("work.cu", "work")[0]
	begin := g.event()
	var marks [overlapChunks][4]*cuda.Event // around the work of each chunk
	for chunk := range marks {
		for i := range marks[chunk] {
			marks[chunk][i] = g.event()
		}
	}
	n := g.elements(overlapChunks*g.pick(1<<21, 1<<8), 4) / overlapChunks // numbers of a chunk
	bytes := int64(4 * n)
	device, pinned := g.buffer(overlapChunks*bytes), g.host(overlapChunks*bytes)
	pageable, err := syscall.Mmap(-1, 0, int(overlapChunks*bytes), syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		check(fmt.Errorf("cannot allocate %d bytes of host memory: %w", overlapChunks*bytes, err))
	}
	g.OnClose(func() error { return syscall.Munmap(pageable) })
	clear(pageable)
	other := must(g.Device.NewStream())
	g.OnClose(func() error { return errors.Join(other.Synchronize(), other.Close()) })

	launch := func(s *cuda.Stream, chunk int, rounds int32) error {
		at := device.Ptr() + cuda.Ptr(int64(chunk)*bytes)
		return work.Launch(s, line(4*g.Device.Info().Processors, 256), at, int32(n), rounds)
	}
	// The kernel gets as many rounds as make it as long as a copy. The first two tries warm up.
	rounds := int32(256)
	for range 3 {
		copied := g.timeUs(func() { check(g.Stream.CopyToDevice(device, 0, pinned, 0, bytes)) })
		if kernel := g.timeUs(func() { check(launch(g.Stream, 0, 256)) }); kernel > 0 {
			rounds = int32(min(max(256*copied/kernel, 1), 1<<16))
		}
	}
	g.add("all", "bytes", 0, float64(bytes))
	var ways []way
	for _, of := range overlapCases {
		streams := []*cuda.Stream{g.Stream, other}
		if of == inOneStream {
			streams = streams[:1]
		}
		ways = append(ways, way{of: of, run: func() (end float64) {
			check(g.Stream.Record(begin), other.Wait(begin))
			for chunk, m := range marks {
				s, at := streams[chunk%len(streams)], int64(chunk)*bytes
				in := func() error { return s.CopyToDevice(device, at, pinned, at, bytes) }
				back := func() error { return s.CopyToHost(pinned, at, device, at, bytes) }
				if of == pageableTwo {
					in = func() error { return s.Write(device, at, pageable[at:at+bytes]) }
					back = func() error { return s.Read(device, at, pageable[at:at+bytes]) }
				}
				check(s.Record(m[0]), in(), s.Record(m[1]), launch(s, chunk, rounds), s.Record(m[2]), back(), s.Record(m[3]))
			}
			check(g.Stream.Synchronize(), other.Synchronize())
			for chunk := range marks {
				for i, event := range marks[chunk] {
					t := us(must(event.Since(begin)))
					g.add(of, fmt.Sprintf("mark_%d_us", i), float64(chunk), t)
					end = max(end, t)
				}
			}
			return end
		}})
	}
	g.inTurns(g.pick(11, 7), ways...)
}

// span is when the work of a chunk ran, in us.
type span struct {
	work       string
	chunk      int
	start, end float64
}

// spansOf are the times of the work of one round of a case, as far as both marks were read. A mark before work says
// when the stream came to it; work of a kind waits for the work of that kind before it, so it starts no earlier than
// that ended.
func spansOf(d Data, of string, round int) (spans []span) {
	ends := make([]float64, len(chunkWork))
	for chunk := range overlapChunks {
		for i, name := range chunkWork {
			from := d.at(of, fmt.Sprintf("mark_%d_us", i), float64(chunk))
			to := d.at(of, fmt.Sprintf("mark_%d_us", i+1), float64(chunk))
			if round >= len(from) || round >= len(to) {
				return spans
			}
			s := span{name, chunk, max(from[round], ends[i]), to[round]}
			ends[i] = s.end
			spans = append(spans, s)
		}
	}
	return spans
}

// hidden returns how much of the time of kernels a copy ran too, in percent; false without kernels.
func hidden(spans []span) (percent float64, ok bool) {
	var copies, work []window.Interval
	for _, s := range spans {
		x := window.Interval{From: int64(1000 * s.start), To: int64(1000 * s.end)} // ns
		if s.work == chunkWork[1] {
			work = append(work, x)
		} else {
			copies = append(copies, x)
		}
	}
	copies, work = window.Union(copies), window.Union(work)
	total, both := int64(0), int64(0)
	for _, x := range work {
		total += x.Length()
		both += window.Covered(copies, x)
	}
	return 100 * float64(both) / float64(max(1, total)), total > 0
}

func judgeOverlap(d Data) Finding {
	var overlaps, times []Figure
	for _, of := range overlapCases {
		var percents []float64
		for round := range d.values(of, "time_us") { // the marks have one more round before, for warm-up
			if p, ok := hidden(spansOf(d, of, round+1)); ok {
				percents = append(percents, p)
			}
		}
		overlaps = append(overlaps, figureOf(of+": kernel time hidden by copies", "%", percents))
		times = append(times, figureOf(of+": time", "us", d.values(of, "time_us")))
	}
	gain := figureOf("speed of two streams over one, pinned", "x",
		ratios(d.values(inOneStream, "time_us"), d.values(inTwoStreams, "time_us")))
	f := Finding{Figures: append(append(times, gain), overlaps...)}
	f.Text = fmt.Sprintf("%d chunks go to the GPU, are computed and come back. In two streams from pinned memory, copies "+
		"run during %s of the kernel time.", overlapChunks, overlaps[1].Short())
	low, high := overlaps[1].interval()
	faster, _ := gain.interval()
	_, most := overlaps[2].interval()
	shown := low > 25 && faster > 1
	return f.decide(
		rule{HalfTrue, shown && most < 10, "Half true: they overlap in different streams and from pinned memory, not otherwise."},
		rule{Shown, shown, ""},
		rule{Refuted, high < 10, ""})
}

func drawOverlap(d Data) chart.Picture {
	p := chart.Panel{X: chart.Axis{Name: "time", Unit: "us"}}
	for chunk := range overlapChunks {
		p.Kinds = append(p.Kinds, fmt.Sprint(chunk+1))
	}
	for _, of := range overlapCases {
		spans := spansOf(d, of, 1)
		for _, work := range chunkWork {
			row := chart.Row{Name: of + ": " + work}
			for _, s := range spans {
				if s.work == work {
					row.Spans = append(row.Spans, chart.Span{Kind: s.chunk, Start: s.start, End: s.end})
				}
			}
			p.Rows = append(p.Rows, row)
		}
	}
	return chart.Picture{Title: "What ran when, by number of the chunk", Panels: []chart.Panel{p}}
}
