package exec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"gpt2scope/cuda"
	"gpt2scope/cuda/cupti"
	"gpt2scope/gpt2"
	"gpt2scope/nvtx/annotate"
	"gpt2scope/record"
	"gpt2scope/traces"
)

// recording is what a runner notes of its passes, from which events are made when
// recording stops. Its methods do nothing where it is nil.
type recording struct {
	*Runner
	profile *record.Recorder
	cupti   *cupti.Recorder // nil where kernels stamp
	lane    traces.Lane     // of the thread that launches
	clocks  [2]cuda.ClockPair
	sets    map[*compiled]*stampSets
	passes  []passNote
	calls   []callNote
	waits   []span
	events  int   // that the notes will become, about
	dropped int64 // passes for which there was no room
	lost    int64 // kernels that left no stamp
}

// span is a time on the host, as the trace has it.
type span struct{ begin, end int64 }

// passNote is one pass as the host saw it.
type passNote struct {
	*recording
	id       uint64
	plan     *gpt2.Plan
	set      *stampSet // nil where CUPTI records
	row      int       // of the set's ring
	phase    int32
	position int
	span
	first, last int // of recording.calls
}

// callNote is a launch, or a step of an eager pass.
type callNote struct {
	span
	step   int32 // -1 for a whole graph
	isStep bool
}

// maxRecorded bounds the events of a recording: about half a GiB of memory.
const maxRecorded = 2_000_000

// ringBytes bounds the device memory for the stamps of the passes of a plan.
const ringBytes = 32 << 20

// StartRecording records passes from now on, by Options.Recorder: [record.Source].
func (r *Runner) StartRecording(p *record.Recorder) error {
	switch {
	case r.failed != nil:
		return r.failed
	case r.recording != nil:
		return errors.New("the session is being recorded already")
	}
	runtime.LockOSThread()
	rec := &recording{Runner: r, profile: p, cupti: r.backend.cupti, lane: p.Thread(), sets: map[*compiled]*stampSets{}}
	err := r.stream.Synchronize()
	if err == nil {
		err = r.forget() // graphs are recorded anew, with stamps or so that their nodes are known
	}
	switch {
	case err != nil:
	case rec.cupti != nil:
		err = rec.cupti.Start()
	default:
		rec.clocks[0], err = r.stream.CompareClocks()
	}
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	r.recording = rec
	p.Name(rec.lane, "main")
	if rec.cupti == nil {
		p.Name(rec.stream(), "stream of the session")
	}
	p.Header(rec.describe)
	return nil
}

// describe fills in the header.
func (rec *recording) describe(h *traces.Header) {
	info := rec.backend.dev.Info()
	if rec.cupti == nil {
		h.Recorder = traces.RecorderStamps
	}
	h.Clock = traces.Clock{Domain: "globaltimer", Uncertainty: int64(rec.clocks[0].Uncertainty)}
	h.DType = map[cuda.DType]string{cuda.F32: "f32", cuda.BF16: "bf16"}[rec.backend.dtype]
	h.Devices = append(h.Devices, traces.Device{
		ID: info.Index, Name: info.Name, Compute: fmt.Sprintf("%d.%d", info.Major, info.Minor), SMs: info.Processors, Memory: int64(info.MemoryBytes),
		Bandwidth: 2 * 1000 * int64(info.MemoryClockKHz) * int64(info.MemoryBusBits) / 8, ClockHz: 1000 * int64(info.ClockKHz),
		WarpsPerSM: info.ThreadsPerProcessor / 32, BlocksPerSM: info.BlocksPerProcessor, RegistersPerSM: info.RegistersPerProc, SharedPerSM: info.SharedPerProcessor,
	})
	if rec.cupti != nil {
		return
	}
	h.NotRecorded = append(h.NotRecorded,
		"copies and sets, and API calls other than launches and waits",
		"of kernels all but the number of their blocks",
		"when a product of cuBLASLt began and ended: it lies between the stamps of its neighbours, with the time to start it and with further kernels of it, such as the sum of a product in parts")
}

func (rec *recording) stream() traces.Lane {
	return traces.Stream(rec.lane.Process, int32(rec.backend.dev.Info().Index), 0, 1)
}

// begin notes a pass. Where it stamps into a set, it takes a row of its ring.
func (rec *recording) begin(c *compiled, set *stampSet) *passNote {
	if rec == nil {
		return nil
	}
	n := 2*len(c.plan.Steps) + 4
	switch {
	case rec.cupti != nil && rec.events+n <= maxRecorded:
	case rec.cupti != nil:
		rec.dropped++
		return nil
	case set == nil || !set.ready: // nothing can be told of it: see stampSets
		return nil
	case rec.events+n > maxRecorded || set.passes >= set.rows:
		rec.dropped++
		set.passes++
		return nil
	}
	rec.events += n
	position := rec.position + rec.ahead
	note := passNote{recording: rec, id: rec.profile.IDs(1), plan: c.plan, set: set, phase: rec.phase(c, position), position: position,
		span: span{begin: rec.profile.Now()}, first: len(rec.calls)}
	if set != nil {
		note.row = set.passes
		set.passes++
	}
	rec.passes = append(rec.passes, note)
	return &rec.passes[len(rec.passes)-1]
}

// capture returns a note for the tags of what is captured, none where kernels stamp. It
// is no pass.
func (rec *recording) capture(c *compiled) *passNote {
	if rec == nil || rec.cupti == nil {
		return nil
	}
	return &passNote{recording: &recording{Runner: rec.Runner, profile: rec.profile, cupti: rec.cupti}, phase: rec.phase(c, rec.position+rec.ahead)}
}

// phase registers the plan of a pass. The costs are those of the tokens that were
// asked for, not of the padding.
func (rec *recording) phase(c *compiled, position int) int32 {
	plan, executed := c.plan, c.plan.Phase.Tokens
	if !plan.Phase.IsDecode() && rec.asked < executed {
		phase := plan.Phase
		phase.Tokens = rec.asked
		if asked := rec.Plan(phase); len(asked.Steps) == len(plan.Steps) {
			plan = asked
		}
	}
	return rec.profile.Plan(plan, position, executed, rec.backend.Sizes())
}

// end notes that the pass is launched.
func (n *passNote) end() {
	if n != nil {
		n.span.end, n.last = n.profile.Now(), len(n.calls)
	}
}

// noteCall is a call under way.
type noteCall struct {
	*passNote
	at    int64
	index int
}

// call notes that a call begins.
func (n *passNote) call() noteCall {
	if n == nil {
		return noteCall{}
	}
	return noteCall{passNote: n, at: n.profile.Now()}
}

// graph notes that it launched a graph, kernel that it launched a step.
func (c noteCall) graph() { c.add(-1) }

func (c noteCall) kernel(step int) { c.add(int32(step)) }

func (c noteCall) add(step int32) {
	if c.passNote != nil && c.cupti == nil { // which has the calls itself
		c.calls = append(c.calls, callNote{span: span{c.at, c.profile.Now()}, step: step})
	}
}

// step notes that a step begins.
func (n *passNote) step(i int) noteCall {
	if n == nil {
		return noteCall{}
	}
	n.calls = append(n.calls, callNote{span: span{begin: n.profile.Now()}, step: int32(i), isStep: true})
	return noteCall{passNote: n, index: len(n.calls) - 1}
}

func (c noteCall) end() {
	if c.passNote != nil {
		c.calls[c.index].end = c.profile.Now()
	}
}

// wait notes a wait for the device, until the function that it returns is called.
func (rec *recording) wait() func() {
	if rec == nil {
		return func() {}
	}
	began := rec.profile.Now()
	return func() {
		if end := rec.profile.Now(); end-began > int64(500*time.Nanosecond) && len(rec.waits) < maxRecorded {
			rec.waits = append(rec.waits, span{began, end})
		}
	}
}

// stampSets are where the kernels of a plan stamp. The first pass only shows which
// kernels there are: it is not recorded.
//
// Between products of a library that belong to different steps a mark must stand for
// them to be told apart: a kernel that does nothing else, and costs as much as one. In
// graphs only each markedEvery-th pass has marks. By what the products took there, the
// time of those that follow each other is divided in the others.
type stampSets struct {
	marked *stampSet
	plain  *stampSet // the same where there is nothing to tell apart
	passes int
}

const markedEvery = 16

// stampSet is where the kernels of a pass stamp.
type stampSet struct {
	*recording
	c      *compiled
	of     *stampSets
	items  []item
	done   int // launches of the pass under way
	ready  bool
	count  int          // areas
	areas  *cuda.Buffer // (count) areas, then passes and blocks of gs_collect_args
	ring   *cuda.Buffer // (rows, count) pairs
	rows   int
	passes int         // launched since ready
	pairs  []uint64    // what was read of the ring
	graph  *cuda.Graph // of a pass that stamps here
}

// item is a kernel that stamps, or a product of a library between two that do.
type item struct {
	step   int // -1: a mark
	area   int // -1: of a library
	launch int // of the pass, counted without marks
	name   string
	blocks int
}

// libraryName is what products of a library are called, whose own names are not known.
const libraryName = "library product (bounded by its neighbours)"

// pick returns where the next pass of a plan stamps.
func (rec *recording) pick(c *compiled) *stampSet {
	if rec == nil || rec.cupti != nil {
		return nil
	}
	s := rec.sets[c]
	if s == nil {
		s = &stampSets{}
		s.marked = &stampSet{recording: rec, c: c, of: s}
		rec.sets[c] = s
	}
	if !s.marked.ready {
		return s.marked
	}
	n := s.passes
	s.passes++
	if rec.backend.mode == Eager || n%markedEvery == 0 {
		return s.marked
	}
	return s.plain
}

// other returns the other set of the plan, nil where there is none.
func (s *stampSet) other() *stampSet {
	switch {
	case s == nil || s.of.plain == s.of.marked:
		return nil
	case s == s.of.plain:
		return s.of.marked
	}
	return s.of.plain
}

func (s *stampSet) begin() error {
	if s == nil {
		return nil
	}
	if s.areas == nil { // one, so that areas are counted
		var err error
		if s.areas, err = s.zeroed(cuda.StampArea); err != nil {
			return err
		}
	}
	s.items, s.done = s.items[:0], 0
	return s.Runner.stream.StampInto(s.areas.Ptr(), max(1, s.count))
}

// before puts a mark between products of a library that belong to different steps,
// of which nothing would be known apart.
func (s *stampSet) before(step int, l launch) error {
	if s == nil || !l.library || len(s.items) == 0 || s == s.of.plain && s != s.of.marked {
		return nil
	}
	if last := s.items[len(s.items)-1]; last.area >= 0 || last.step == step {
		return nil
	}
	return s.mark()
}

func (s *stampSet) mark() error {
	if err := s.Runner.stream.Mark(); err != nil {
		return err
	}
	return s.took(-1)
}

// after notes which areas a launch took.
func (s *stampSet) after(step int, l launch) error {
	if s == nil {
		return nil
	}
	defer func() { s.done++ }()
	if l.library {
		s.items = append(s.items, item{step, -1, s.done, libraryName, 0})
		return nil
	}
	return s.took(step)
}

// took notes the areas that were taken since the last item.
func (s *stampSet) took(step int) error {
	used, err := s.Runner.stream.Stamped()
	if err != nil {
		return err
	}
	from := 0
	for _, it := range s.items {
		from = max(from, it.area+1)
	}
	for i := from; i < used; i++ {
		name, blocks, err := s.Runner.stream.StampedBy(i)
		if err != nil {
			return err
		}
		s.items = append(s.items, item{step, i, s.done, name, blocks})
	}
	return nil
}

// end collects the stamps of the pass. After the first, which only counted, it makes
// the areas.
func (s *stampSet) end() error {
	if s == nil {
		return nil
	}
	if n := len(s.items); n > 0 && s.items[n-1].area < 0 { // nothing would bound it
		if err := s.mark(); err != nil {
			return err
		}
	}
	if !s.ready {
		return errors.Join(s.Runner.stream.StampInto(0, 0), s.Runner.stream.Synchronize(), s.areas.Free(), s.make(), s.of.makePlain())
	}
	tail := s.areas.Ptr() + cuda.Ptr(s.count*cuda.StampArea)
	return errors.Join(s.Runner.stream.StampInto(0, 0), s.Runner.stream.CollectStamps(cuda.CollectArgs{
		Count: uint32(s.count), Rows: uint32(s.rows), Areas: s.areas.Ptr(), Ring: s.ring.Ptr(), Passes: tail, Blocks: tail + cuda.Ptr(8*s.count)}))
}

// makePlain makes the set without marks, where there are marks that matter.
func (s *stampSets) makePlain() error {
	plain := *s.marked
	plain.items = nil
	left, area := 0, 0
	for i, it := range s.marked.items {
		if it.step < 0 && i < len(s.marked.items)-1 { // one at the end bounds the last product
			left++
			continue
		}
		if it.area >= 0 {
			it.area = area
			area++
		}
		plain.items = append(plain.items, it)
	}
	s.plain = s.marked
	if left == 0 || s.marked.backend.mode == Eager {
		return nil
	}
	s.plain = &plain
	return plain.make()
}

// make allocates areas and ring.
func (s *stampSet) make() error {
	s.count = 0
	for _, it := range s.items {
		s.count = max(s.count, it.area+1)
	}
	if s.count == 0 {
		return errors.New("a pass has no kernel that can be stamped")
	}
	s.rows = min(ringBytes/(s.count*cuda.StampPair), 1<<14)
	var err error
	if s.areas, err = s.zeroed(int64(s.count * (cuda.StampArea + 8 + 4))); err != nil {
		return fmt.Errorf("stamps of a pass: %w", err)
	}
	blocks := make([]byte, 4*s.count)
	for _, it := range s.items {
		if it.area >= 0 {
			binary.LittleEndian.PutUint32(blocks[4*it.area:], uint32(it.blocks))
		}
	}
	// Not before the zeros are there.
	if err := errors.Join(s.Runner.stream.Synchronize(), s.areas.Write(int64(s.count*(cuda.StampArea+8)), blocks)); err != nil {
		return err
	}
	if s.ring, err = s.Runner.backend.dev.Alloc(int64(s.rows * s.count * cuda.StampPair)); err != nil {
		return fmt.Errorf("stamps of %d passes: %w", s.rows, err)
	}
	s.ready = true
	return nil
}

// drain reads the stamps of a plan's passes, and frees where they were. No pass of it
// is launched after that.
func (rec *recording) drain(c *compiled) error {
	if rec == nil || rec.sets[c] == nil {
		return nil
	}
	s := rec.sets[c]
	delete(rec.sets, c)
	if err := rec.Runner.stream.Synchronize(); err != nil {
		return err
	}
	err := s.marked.drain()
	if s.plain != nil && s.plain != s.marked {
		err = errors.Join(err, s.plain.drain())
	}
	return err
}

func (s *stampSet) drain() error {
	if n := min(s.passes, s.rows) * s.count; n > 0 {
		raw := make([]byte, n*cuda.StampPair)
		if err := s.ring.Read(0, raw); err != nil {
			return err
		}
		s.pairs = make([]uint64, 2*n)
		for i := range s.pairs {
			s.pairs[i] = binary.LittleEndian.Uint64(raw[8*i:])
		}
	}
	return errors.Join(free(s.graph), free(s.areas), free(s.ring))
}

// StopRecording makes the events: [record.Source].
func (r *Runner) StopRecording() error {
	rec := r.recording
	if rec == nil {
		return nil
	}
	defer runtime.UnlockOSThread()
	defer func() { r.recording = nil }()
	var events []traces.Event
	err := r.stream.Synchronize()
	switch {
	case err != nil:
	case rec.cupti != nil:
		events, err = rec.stopCUPTI()
	default:
		rec.clocks[1], err = r.stream.CompareClocks()
	}
	if forgot := r.forget(); err == nil { // drains all
		err = forgot
	}
	if err != nil {
		return err
	}
	next := rec.profile.IDs(rec.events)
	for i := range rec.passes {
		if n := &rec.passes[i]; n.span.end > 0 {
			events = n.emit(events, &next)
		}
	}
	for _, w := range rec.waits {
		events = append(events, traces.Plain(traces.KindRuntime, traces.API(rec.lane.Process, rec.lane.ID), "Synchronize by polling for a token", w.begin, w.end-w.begin))
	}
	rec.profile.Header(func(h *traces.Header) {
		h.Drop(fmt.Sprintf("passes, after %d events or stamps of %d MiB", maxRecorded, ringBytes>>20), rec.dropped)
		h.Drop("kernels that left no stamp", rec.lost)
		if rec.cupti != nil {
			return
		}
		h.Clock.Uncertainty = int64(max(rec.clocks[0].Uncertainty, rec.clocks[1].Uncertainty))
	})
	rec.profile.Add(events...)
	return nil
}

// ofDevice returns a time of %globaltimer as the trace has it: by the line through
// the two comparisons of the clocks.
func (rec *recording) ofDevice(ns uint64) int64 {
	a, b := rec.clocks[0], rec.clocks[1]
	since := int64(ns) - a.Device
	drift := float64((b.Host-a.Host)-(b.Device-a.Device)) / float64(max(1, b.Device-a.Device))
	return rec.profile.OfMonotonic(a.Host + since + int64(math.Round(drift*float64(since))))
}

// emit appends the events of a pass.
func (n *passNote) emit(events []traces.Event, next *uint64) []traces.Event {
	id := func() uint64 { *next++; return *next - 1 }
	host := func(kind traces.Kind, lane traces.Lane, name string, s span, step int32, parent uint64) traces.Event {
		e := traces.Plain(kind, lane, name, s.begin, s.end-s.begin)
		e.Phase, e.Tag, e.Parent = n.phase, step, parent
		return e
	}
	plan := n.plan
	pass := host(traces.KindPass, n.lane, annotate.PassName(plan, n.position), n.span, -1, 0)
	pass.ID, pass.Domain, pass.Value = n.id, annotate.DomainName, float64(n.position)
	events = append(events, pass)
	api := traces.API(n.lane.Process, n.lane.ID)
	parent := pass.ID
	var launches []uint64 // correlation ids
	var called []int64    // when
	isGraph := false
	for _, c := range n.calls[n.first:n.last] {
		switch {
		case c.isStep:
			e := host(traces.KindStep, n.lane, plan.Steps[c.step].Name(), c.span, c.step, pass.ID)
			e.ID, e.Domain = id(), annotate.DomainName
			parent = e.ID
			events = append(events, e)
		default:
			name := "cudaLaunchKernel"
			if c.step < 0 {
				name, parent, isGraph = "cudaGraphLaunch", pass.ID, true
			}
			e := host(traces.KindRuntime, api, name, c.span, c.step, parent)
			e.Correlation = id()
			launches, called = append(launches, e.Correlation), append(called, c.begin)
			events = append(events, e)
		}
	}
	if n.set == nil {
		return events
	}
	shares := n.set.of.shares(n.set)
	ordinal := -1 // among items that are no marks
	for i, it := range n.set.items {
		if it.step < 0 {
			continue
		}
		ordinal++
		name := it.name
		begin, end := n.set.interval(n.row, i)
		if it.area < 0 {
			if n.set.items[i-1].area < 0 && n.set.items[i-1].step == it.step {
				continue // a further product of the same step: told by the first
			}
			if from, to := shares[ordinal][0], shares[ordinal][1]; to-from < 1 {
				length := float64(end - begin)
				begin, end = begin+uint64(length*from), begin+uint64(length*to)
				name += fmt.Sprintf(", divided as in each %dth pass", markedEvery)
			}
		}
		if begin == 0 || end < begin {
			n.recording.lost++
			continue
		}
		at, to := n.ofDevice(begin), n.ofDevice(end)
		if it.area < 0 && !isGraph && it.launch < len(called) { // not before it was asked for
			at = min(max(at, called[it.launch]), to)
		}
		e := traces.Plain(traces.KindKernel, n.recording.stream(), name, at, max(0, to-at))
		e.Phase, e.Tag, e.Parent = n.phase, int32(it.step), pass.ID
		if it.blocks > 0 {
			e.Grid = [3]int32{int32(min(it.blocks, math.MaxInt32)), 1, 1}
		}
		switch {
		case isGraph:
			e.Correlation = launches[0]
		case it.launch < len(launches):
			e.Correlation = launches[it.launch]
		}
		events = append(events, e)
	}
	return events
}

// interval returns when item i of the pass in a row of the ring ran: of a library's
// product, from the end of the stamp before to the start of the stamp after it.
func (s *stampSet) interval(row, i int) (begin, end uint64) {
	pairs := s.pairs[2*row*s.count:]
	if a := s.items[i].area; a >= 0 {
		return pairs[2*a], pairs[2*a+1]
	}
	for _, before := range slices.Backward(s.items[:i]) {
		if before.area >= 0 {
			begin = pairs[2*before.area+1]
			break
		}
	}
	for _, later := range s.items[i+1:] {
		if later.area >= 0 {
			end = pairs[2*later.area]
			break
		}
	}
	return begin, end
}

// shares returns, for each item of a pass without marks, from where to where it reaches
// in the interval that it shares with its neighbours: 0 to 1 where it has its own.
func (s *stampSets) shares(of *stampSet) [][2]float64 {
	var kept []int // items of the marked set that are no marks
	for i, it := range s.marked.items {
		if it.step >= 0 {
			kept = append(kept, i)
		}
	}
	out := make([][2]float64, len(kept))
	for i := range out {
		out[i] = [2]float64{0, 1}
	}
	if of == s.marked || s.marked.pairs == nil {
		return out
	}
	length := make([]float64, len(kept)) // in all marked passes
	for k, i := range kept {
		if s.marked.items[i].area >= 0 {
			continue
		}
		if k > 0 && s.marked.items[i-1].area < 0 { // a further product of the same step
			continue
		}
		for row := range min(s.marked.passes, s.marked.rows) {
			if begin, end := s.marked.interval(row, i); end > begin {
				length[k] += float64(end - begin)
			}
		}
	}
	for k := 0; k < len(kept); {
		end, sum := k, 0.0
		for end < len(kept) && s.marked.items[kept[end]].area < 0 {
			sum += length[end]
			end++
		}
		at := 0.0
		for m := k; m < end && sum > 0; m++ {
			out[m] = [2]float64{at / sum, (at + length[m]) / sum}
			at += length[m]
		}
		k = max(end, k+1)
	}
	return out
}

var _ record.Source = (*Runner)(nil)
var _ gpt2.Runner = (*Runner)(nil)
