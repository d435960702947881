package exec

import (
	"cmp"
	"math"

	"gpt2scope/cuda"
	"gpt2scope/traces"
)

// stampRecorder records by stamps: each of our kernels notes when it started and ended.
type stampRecorder struct {
	host   notes
	stream *cuda.Stream
	eager  bool

	clocks [2]cuda.ClockPair // at the start and the end of the recording
	plans  map[*compiled]*planStamps
	rows   []stampRow // of host.passes, in the same order
	lost   int64      // kernels that left no stamp

	current    stampPass
	persistent *persistentRecorder // nil before the persistent kernel ran
}

// stampRow is where the stamps of a pass are.
type stampRow struct {
	set *stampSet
	row int // of its ring
}

// ringBytes bounds the device memory for the stamps of the passes of a plan.
const ringBytes = 32 << 20

func startStamps(s *cuda.Stream, n notes, eager bool) (recorder, error) {
	rec := &stampRecorder{host: n, stream: s, eager: eager, plans: map[*compiled]*planStamps{}}
	var err error
	if rec.clocks[0], err = s.CompareClocks(); err != nil {
		return nil, err
	}
	n.to.Header(func(h *traces.Header) {
		h.Recorder = traces.RecorderStamps
		h.NotRecorded = append(h.NotRecorded,
			"copies and sets, and API calls other than launches and waits",
			"of kernels all but the number of their blocks",
			"when a product of cuBLASLt began and ended: it lies between the stamps of its neighbours, with the time to "+
				"start it and with further kernels of it, such as the sum of a product in parts")
	})
	n.to.Name(rec.lane(), "stream of the session")
	return rec, nil
}

// lane is that of the stream's kernels.
func (rec *stampRecorder) lane() traces.Lane {
	return traces.Stream(rec.host.lane.Process, int32(rec.stream.Device().Info().Index), 0, 1)
}

func (rec *stampRecorder) wait() (end func()) { return rec.host.wait() }

func (rec *stampRecorder) variants(c *compiled) (next, other *variant) {
	p := rec.plans[c]
	if p == nil {
		p = &planStamps{marked: newStampSet(rec.stream)}
		p.marked.of = p
		rec.plans[c] = p
	}
	if !p.marked.ready {
		return &p.marked.variant, nil
	}
	n := p.passes
	p.passes++
	switch {
	case p.plain == p.marked:
		return &p.marked.variant, nil
	case n%markedEvery == 0:
		return &p.marked.variant, &p.plain.variant
	}
	return &p.plain.variant, &p.marked.variant
}

// stampPass is a pass whose kernels stamp.
type stampPass struct {
	rec   *stampRecorder
	set   *stampSet
	note  passNote
	row   int  // of the set's ring
	noted bool // else only its kernels stamp
}

// capture begins a pass whose kernels stamp, and of which nothing is noted.
func (rec *stampRecorder) capture(_ passAt, v *variant) passRecorder {
	rec.current = stampPass{rec: rec, set: v.stamps, note: rec.host.scratch()}
	return &rec.current
}

func (rec *stampRecorder) pass(at passAt, v *variant) passRecorder {
	set := v.stamps
	if !set.ready {
		return rec.capture(at, v)
	}
	row := set.passes
	set.passes++
	if row >= set.rows || !rec.host.hasRoom(at.c) {
		rec.host.dropped++
		return rec.capture(at, v)
	}
	rec.current = stampPass{rec: rec, set: set, note: rec.host.begin(at), row: row, noted: true}
	return &rec.current
}

func (p *stampPass) begin() error { return p.set.begin() }

func (p *stampPass) step(i int) { p.rec.host.step(i) }

func (p *stampPass) launch(i int, l launch) error {
	if err := p.set.before(i, l); err != nil {
		return err
	}
	began := p.rec.host.to.Now()
	if err := l.run(); err != nil {
		return err
	}
	p.rec.host.call(began, i)
	return p.set.after(i, l)
}

func (p *stampPass) endStep() { p.rec.host.endStep() }

func (p *stampPass) end() error {
	first := !p.set.ready
	if err := p.set.end(); err != nil || !first {
		return err
	}
	return p.set.of.makePlain(p.rec.eager)
}

func (p *stampPass) replay(g *cuda.Graph, s *cuda.Stream) error {
	began := p.rec.host.to.Now()
	err := g.Launch(s)
	p.rec.host.call(began, -1)
	return err
}

func (p *stampPass) close() {
	if !p.noted {
		p.rec.host.discard(p.note)
		return
	}
	p.rec.host.keep(p.note)
	p.rec.rows = append(p.rec.rows, stampRow{p.set, p.row})
}

// forget reads the stamps of a plan's passes, and frees where they were.
func (rec *stampRecorder) forget(c *compiled) error {
	p := rec.plans[c]
	if p == nil {
		return nil
	}
	delete(rec.plans, c)
	err := rec.stream.Synchronize()
	sets := []*stampSet{p.marked}
	if p.plain != nil && p.plain != p.marked {
		sets = append(sets, p.plain)
	}
	for _, s := range sets {
		if err == nil {
			err = s.read()
		}
		err = cmp.Or(err, free(s.graph), free(s.areas), free(s.ring))
	}
	return err
}

func (rec *stampRecorder) stop() error {
	var err error
	rec.clocks[1], err = rec.stream.CompareClocks()
	for c := range rec.plans {
		err = cmp.Or(err, rec.forget(c))
	}
	if rec.persistent != nil {
		err = cmp.Or(err, rec.persistent.stamps.Finish())
	}
	if err != nil {
		return err
	}
	var events []traces.Event
	next := rec.host.to.IDs(rec.host.events)
	for i, p := range rec.host.passes {
		host := rec.host.hostEvents(p, &next)
		events = append(append(events, host.events...), rec.kernels(p, rec.rows[i], host)...)
	}
	if rec.persistent != nil {
		events = append(events, rec.persistent.events(&next)...)
	}
	rec.host.finish(events)
	rec.host.to.Header(func(h *traces.Header) {
		h.Clock = traces.Clock{Domain: "globaltimer", Uncertainty: int64(max(rec.clocks[0].Uncertainty,
			rec.clocks[1].Uncertainty))}
		h.Drop("kernels that left no stamp", rec.lost)
	})
	return nil
}

// ofDevice returns a time of %globaltimer as the trace has it: by the line through the two comparisons of the clocks.
func (rec *stampRecorder) ofDevice(ns uint64) int64 {
	a, b := rec.clocks[0], rec.clocks[1]
	since := int64(ns) - a.Device
	drift := float64((b.Host-a.Host)-(b.Device-a.Device)) / float64(max(1, b.Device-a.Device))
	return rec.host.to.OfMonotonic(a.Host + since + int64(math.Round(drift*float64(since))))
}

// kernels makes the events of a pass on the device.
func (rec *stampRecorder) kernels(p passNote, at stampRow, host hostEvents) (events []traces.Event) {
	lane, shares := rec.lane(), at.set.of.shares(at.set)
	ordinal := -1 // among items that are no marker kernels
	for i, it := range at.set.items {
		if it.step < 0 {
			continue
		}
		ordinal++
		begin, end := at.set.interval(at.row, i)
		if it.area < 0 && at.set.items[i-1].area < 0 && at.set.items[i-1].step == it.step {
			continue // a further product of the same step: the first has the time of both
		}
		if begin == 0 || end < begin {
			rec.lost++
			continue
		}
		divided := false
		if from, to := shares[ordinal][0], shares[ordinal][1]; to-from < 1 {
			length := float64(end - begin)
			begin, end = begin+uint64(length*from), begin+uint64(length*to)
			divided = true
		}
		start, stop := rec.ofDevice(begin), rec.ofDevice(end)
		if it.area < 0 && !host.isGraph && it.launch < len(host.launches) { // not before it was launched
			start = min(max(start, host.launches[it.launch].began), stop)
		}
		e := traces.Plain(traces.KindKernel, lane, it.name, start, max(0, stop-start))
		e.Plan, e.Step, e.Parent = p.recorded, int32(it.step), p.id
		if e.Bounded = it.area < 0; divided {
			e.DividedEvery = markedEvery
		}
		if it.blocks > 0 {
			e.Grid = [3]int32{int32(min(it.blocks, math.MaxInt32)), 1, 1}
		}
		switch {
		case host.isGraph:
			e.Correlation = host.launches[0].correlation
		case it.launch < len(host.launches):
			e.Correlation = host.launches[it.launch].correlation
		}
		events = append(events, e)
	}
	return events
}
