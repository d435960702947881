package exec

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"gpt2scope/cuda"
	"gpt2scope/traces"
)

// This file records mode persistent: the kernel of a launch notes for each SM and step when it
// did what, and each decode step of the launch is a pass of the recording.
//
// Recording must not slow the launches. Their stamps stay on the device until recording stops,
// each launch's in an area of its own, as far as there is room: gpt2 has 256 KiB a decode step.
// After that, areas are used again: when a token of the next launch has been read, a launch is
// done, and its area is copied to pinned memory on a stream of its own. Goroutines sum up what
// the SMs did.

const (
	mostAreas   = 4096    // decode steps, in launches of one or of several
	areasBytes  = 1 << 30 // of all areas, or an eighth of the free memory if that is less
	fewestAreas = 6       // up to three launches are under way, others are copied and cleared
	stagings    = 4
	mostEach    = 12 // decode steps of which the times of each SM are kept
)

// decodeStamps records the launches of the decode kernel of a session.
type decodeStamps struct {
	rec     *stampRecorder
	steps   []int    // of each step of the kernel, that of the plan
	names   []string // of its events
	blocks  int
	failed  error // why there are no areas
	copies  *cuda.Stream
	areas   *cuda.Buffer // zero if not in use: see room
	tokens  int          // decode steps of a launch that an area has room for
	most    int          // launches that have an area
	staging [stagings]decodeStaging

	launches []*decodeLaunch
	copied   int // launches whose copy was begun
	summing  int // launches that were given to a goroutine
	summed   sync.WaitGroup

	count int // decode steps so far
	every int // the times of each SM are kept of one decode step in so many
}

// decodeStaging is where the stamps of a launch are copied to.
type decodeStaging struct {
	host   *cuda.HostBuffer
	copied *cuda.Event   // the copy is done, and the area on the device is zero again
	free   chan struct{} // has a value while nothing is to be read there
}

// decodeLaunch is a launch of the decode kernel.
type decodeLaunch struct {
	span                 // of the host
	step     uint64      // the session's number of its first decode step
	position int         // of its first token
	bytes    int64       // of its stamps
	first    int         // decode steps recorded before it
	passes   []passNote  // its decode steps
	drawn    *drawnNote  // of a launch of one step whose token another kernel draws
	rows     []decodeRow // (passes, steps), once they are summed up
	each     []bool      // of each pass, whether the times of each SM are kept
}

// drawnNote is the kernel that draws the token of a decode step.
type drawnNote struct {
	span
	name   string
	blocks int
}

// decodeRow is a step of a decode step: from when the last SM published the outputs of the
// step before to when the last one published its own, in ns of the device's clock. end is 0
// if no SM has left a stamp.
type decodeRow struct {
	begin, end uint64
	inside     traces.Inside
}

// decodeRecorder returns what records the launches of the decode kernel, nil if nothing does.
// The first call makes it, with areas for launches of up to so many decode steps.
func (r *Runner) decodeRecorder(tokens int) (*decodeStamps, error) {
	rec, ok := r.recorder.(*stampRecorder)
	if !ok {
		return nil, nil
	}
	if rec.decode != nil {
		return rec.decode, rec.decode.failed
	}
	d := &decodeStamps{rec: rec, tokens: tokens, every: 1}
	d.steps, d.blocks = r.stamped()
	for _, i := range d.steps {
		d.names = append(d.names, "decode_kernel ("+r.together.plan.Steps[i].Op().String()+")")
	}
	rec.decode, d.failed = d, d.allocate(r.stream)
	return d, d.failed
}

func (d *decodeStamps) allocate(s *cuda.Stream) error {
	dev, size := s.Device(), d.room()
	available, _, err := dev.Memory()
	if err != nil {
		return err
	}
	d.most = int(min(max(min(areasBytes, int64(available/8))/size, fewestAreas), int64(mostAreas/d.tokens)))
	if d.copies, err = dev.NewStream(); err != nil {
		return err
	}
	if d.areas, err = zeroed(s, int64(d.most)*size); err != nil {
		return fmt.Errorf("stamps of %d launches of %d decode steps: %w", d.most, d.tokens, err)
	}
	for i := range d.staging {
		to := &d.staging[i]
		to.free = make(chan struct{}, 1)
		to.free <- struct{}{}
		if to.host, err = dev.AllocHost(size); err != nil {
			return fmt.Errorf("stamps of %d decode steps: %w", d.tokens, err)
		}
		if to.copied, err = dev.NewEvent(); err != nil {
			return err
		}
	}
	d.rec.host.to.Header(func(h *traces.Header) {
		h.NotRecorded = append(h.NotRecorded, "when a launch of decode steps in one kernel began: its first step begins when the first SM has weights")
	})
	return nil
}

// freeStamps frees where the decode kernel stamps.
func (r *Runner) freeStamps() error {
	if rec, ok := r.recorder.(*stampRecorder); ok && rec.decode != nil {
		return rec.decode.free()
	}
	return nil
}

// room is the size of an area: (tokens, steps, blocks) cuda.DecodeStamp, or those of one step and
// after them the area of the kernel that draws its token.
func (d *decodeStamps) room() int64 {
	return max(d.bytes(d.tokens), d.bytes(1)+cuda.StampArea)
}

// bytes are those of the stamps of n decode steps.
func (d *decodeStamps) bytes(n int) int64 {
	return int64(n*len(d.steps)*d.blocks) * int64(unsafe.Sizeof(cuda.DecodeStamp{}))
}

// begin begins the note of a launch of n decode steps at a position. read is the number of the
// decode step that the host reads next, and step that of the launch's first. The launch stamps
// at the address that is returned, 0 if there is no room for its events.
func (d *decodeStamps) begin(c *compiled, read, step uint64, position, n int) (*decodeLaunch, cuda.Ptr, error) {
	host := &d.rec.host
	if host.events+n*eventsOf(c) > maxRecorded {
		host.dropped += int64(n)
		return nil, 0, nil
	}
	if err := d.recycle(read); err != nil {
		return nil, 0, err
	}
	l := &decodeLaunch{step: step, position: position, bytes: d.bytes(n), first: d.count, passes: make([]passNote, n), each: make([]bool, n)}
	for t := range l.passes {
		l.passes[t] = host.begin(passAt{c, position + t, c.plan.Pass.Tokens})
		l.each[t] = (d.count+t)%d.every == 0
	}
	d.count += n
	if d.count > mostEach*d.every {
		d.thin()
	}
	d.launches = append(d.launches, l)
	l.begin = host.to.Now()
	return l, d.areas.Ptr() + cuda.Ptr(d.area(len(d.launches)-1)), nil
}

// recycle makes room for one more launch: it clears the area that this one will use, and as far
// as the launches are done those of the next ones. read is the number of the decode step that the
// host reads next.
func (d *decodeStamps) recycle(read uint64) error {
	next := len(d.launches)
	done := func() bool { return d.copied+1 < next && d.launches[d.copied+1].step < read }
	for next-d.copied > d.most-fewestAreas+1 && d.copied-d.summing < stagings && done() {
		if err := d.copy(); err != nil {
			return err
		}
	}
	for d.summing < d.copied {
		if done, err := d.staged(d.summing).copied.Query(); err != nil {
			return err
		} else if !done {
			break
		}
		d.sum()
	}
	if next-d.summing < d.most {
		return nil
	}
	if err := d.rec.stream.Synchronize(); err != nil {
		return err
	}
	return d.drain(next - d.most + 1)
}

// draw launches the kernel that draws the token of a launch of one step.
func (d *decodeStamps) draw(l *decodeLaunch, launch func() error) error {
	s, to := d.rec.stream, d.rec.host.to
	if err := s.StampInto(d.areas.Ptr()+cuda.Ptr(d.area(len(d.launches)-1)+d.bytes(1)), 1); err != nil {
		return err
	}
	l.drawn = &drawnNote{span: span{begin: to.Now()}}
	err := launch()
	l.drawn.span.end = to.Now()
	if err == nil {
		l.drawn.name, l.drawn.blocks, err = s.StampedBy(0)
	}
	l.span.end = l.drawn.span.end
	l.bytes = d.bytes(1) + 16*int64(min(l.drawn.blocks, cuda.StampArea/16))
	return cmp.Or(err, s.StampInto(0, 0))
}

// end ends the note of a launch. One that failed is taken back.
func (d *decodeStamps) end(l *decodeLaunch, err error) {
	l.span.end = d.rec.host.to.Now()
	if err != nil {
		d.launches = d.launches[:len(d.launches)-1]
	}
}

// area is where the stamps of a launch begin among the areas.
func (d *decodeStamps) area(launch int) int64 {
	return int64(launch%d.most) * d.room()
}

func (d *decodeStamps) staged(launch int) *decodeStaging { return &d.staging[launch%stagings] }

// copy begins to copy the stamps of the next launch, which is done, and to clear its area.
func (d *decodeStamps) copy() error {
	to, from, n := d.staged(d.copied), d.area(d.copied), d.launches[d.copied].bytes
	<-to.free
	d.copied++
	return cmp.Or(d.copies.CopyToHost(to.host, 0, d.areas, from, n), d.copies.Set(d.areas, from, 0, n), d.copies.Record(to.copied))
}

// sum sums up, on a goroutine, the stamps of the next launch, which are copied.
func (d *decodeStamps) sum() {
	from, l := d.staged(d.summing), d.launches[d.summing]
	d.summing++
	d.summed.Add(1)
	bytes, own := from.host.Bytes(), d.bytes(len(l.passes))
	stamps := unsafe.Slice((*cuda.DecodeStamp)(unsafe.Pointer(&bytes[0])), own/int64(unsafe.Sizeof(cuda.DecodeStamp{})))
	var pairs [][2]uint64
	if n := (l.bytes - own) / 16; n > 0 {
		pairs = unsafe.Slice((*[2]uint64)(unsafe.Pointer(&bytes[own])), n)
	}
	go func() {
		defer d.summed.Done()
		l.sum(stamps, len(d.steps), d.blocks)
		l.sumDrawn(pairs)
		from.free <- struct{}{}
	}()
}

// drain copies and gives to goroutines what is left of the first n launches, all of which are
// done.
func (d *decodeStamps) drain(n int) error {
	for d.summing < n {
		for d.copied < min(n, d.summing+stagings) {
			if err := d.copy(); err != nil {
				return err
			}
		}
		if err := d.staged(d.summing).copied.Synchronize(); err != nil {
			return err
		}
		d.sum()
	}
	return nil
}

// thin keeps the times of each SM of a third of the decode steps of which they were kept so far.
// They are then of every third, ninth or 27th decode step. As a launch has 8, these have other
// places in each launch.
func (d *decodeStamps) thin() {
	d.every *= 3
	d.summed.Wait()
	for _, l := range d.launches {
		for t := range l.each {
			if l.each[t] = l.each[t] && (l.first+t)%d.every == 0; l.each[t] || l.rows == nil {
				continue
			}
			n := len(l.rows) / len(l.each)
			for i := range l.rows[t*n : (t+1)*n] {
				l.rows[t*n+i].inside.Each = nil
			}
		}
	}
}

// sum sums up the stamps of a launch: (tokens, steps, blocks).
func (l *decodeLaunch) sum(stamps []cuda.DecodeStamp, steps, blocks int) {
	rows := make([]decodeRow, len(l.passes)*steps)
	var from uint64
	for i := range rows {
		row, at := &rows[i], stamps[i*blocks:(i+1)*blocks]
		first := uint64(0)
		for _, s := range at {
			if s[cuda.DecodePublished] != 0 {
				row.end = max(row.end, s[cuda.DecodePublished])
				if ready := cmp.Or(s[cuda.DecodeReady], s[cuda.DecodeArrived], s[cuda.DecodePublished]); first == 0 || ready < first {
					first = ready
				}
			}
		}
		if row.end == 0 {
			continue
		}
		row.begin = min(cmp.Or(from, first), row.end)
		from = max(from, row.end)
		row.end = from
		in := &row.inside
		if l.each[i/steps] {
			in.Each = make([]traces.Parts, blocks)
		}
		for b, s := range at {
			p, ok := blockTimes(s).Parts(row.begin, row.end)
			if !ok {
				continue
			}
			in.SMs++
			in.Add(p)
			if in.Each != nil {
				in.Each[b] = p
			}
		}
		n := int64(in.SMs)
		in.Parts = traces.Parts{Weights: in.Weights / n, Inputs: in.Inputs / n, Compute: in.Compute / n, Imbalance: in.Imbalance / n}
	}
	l.rows = rows
}

// sumDrawn sums up the stamps of the blocks of the kernel that drew the token: start and end of each.
func (l *decodeLaunch) sumDrawn(pairs [][2]uint64) {
	if l.drawn == nil {
		return
	}
	row := &l.rows[len(l.rows)-1]
	*row = decodeRow{}
	for _, p := range pairs {
		if p[0] != 0 && (row.begin == 0 || p[0] < row.begin) {
			row.begin = p[0]
		}
		row.end = max(row.end, p[1])
	}
}

// finish sums up what is left, when the device is idle.
func (d *decodeStamps) finish() error {
	err := d.drain(len(d.launches))
	d.summed.Wait()
	return err
}

// free frees the areas. A second call does nothing.
func (d *decodeStamps) free() error {
	d.summed.Wait()
	var err error
	if d.copies != nil {
		err = errors.Join(d.copies.Synchronize(), d.copies.Close())
		d.copies = nil
	}
	err = errors.Join(err, free(d.areas))
	for i := range d.staging {
		to := &d.staging[i]
		if to.host != nil {
			err = errors.Join(err, to.host.Free())
		}
		if to.copied != nil {
			err = errors.Join(err, to.copied.Close())
		}
		*to = decodeStaging{}
	}
	return err
}

// events makes the events of the launches. Ids of calls follow *next.
func (d *decodeStamps) events(next *uint64) (events []traces.Event) {
	rec, n := d.rec, len(d.steps)
	lane := rec.lane()
	last := uint64(0) // end of the launch before
	for _, l := range d.launches {
		correlation := *next
		*next++
		for t := range l.passes {
			p := &l.passes[t]
			count := int64(len(l.passes)) // the passes of a launch share the time of its call
			whole := l.span.end - l.span.begin
			p.span = span{l.span.begin + whole*int64(t)/count, l.span.begin + whole*int64(t+1)/count}
			host := rec.host.passEvent(*p)
			events = append(events, host)
			if t == 0 {
				call := traces.Plain(traces.KindRuntime, traces.API(rec.host.lane.Process, rec.host.lane.ID), "cudaLaunchCooperativeKernel", l.span.begin, whole)
				call.Plan, call.Parent, call.Correlation = p.recorded, p.id, correlation
				if l.drawn != nil {
					call.Duration = l.drawn.begin - call.Time
					other := traces.Plain(traces.KindRuntime, call.Lane, "cudaLaunchKernel", l.drawn.begin, l.drawn.end-l.drawn.begin)
					other.Plan, other.Parent, other.Correlation = p.recorded, p.id, *next
					*next++
					events = append(events, other)
				}
				events = append(events, call)
			}
			for i := range n {
				if d.steps[i] >= len(p.plan.Steps) { // it does not sample
					continue
				}
				row := &l.rows[t*n+i]
				if row.end == 0 {
					rec.lost++
					continue
				}
				begin := min(max(row.begin, last), row.end)
				last = max(last, row.end)
				start, stop := rec.ofDevice(begin), rec.ofDevice(row.end)
				e := traces.Plain(traces.KindKernel, lane, d.names[i], start, max(0, stop-start))
				e.Plan, e.Step, e.Parent, e.Correlation = p.recorded, int32(d.steps[i]), p.id, correlation
				e.Grid = [3]int32{int32(d.blocks), 1, 1}
				if drawn := l.drawn != nil && i == n-1; drawn {
					e.Name, e.Correlation, e.Grid[0] = l.drawn.name, *next-1, int32(l.drawn.blocks)
				} else {
					row.inside.Fit(e.Duration)
					e.Inside = &row.inside
				}
				events = append(events, e)
			}
		}
	}
	return events
}
