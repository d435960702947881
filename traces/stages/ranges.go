package stages

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"

	"gpt2scope/internal/lazyregexp"
	"gpt2scope/traces"
)

// Self ends the name of the step of work that was launched in a range, but in none of the ranges inside it that are
// steps.
const Self = "self"

// span is a range that caused work.
type span struct {
	event *traces.Event

	// made tells that the event is not of the trace: the range was around the capture of a graph, and this is what it
	// stands for in one launch of the graph.
	made bool

	name   string // without the number at its end if it is a pass
	inner  []*span
	outer  *span
	direct []*traces.Event // work launched in it and in no inner span
}

// OfRanges makes passes and steps of the ranges of a trace that has none, and reports whether there were any. A range
// whose name matches counts; match may be nil, and then all do that the program made itself.
//
// A pass is an outermost range that has ranges inside. If such a range is there once and the ranges inside it repeat,
// these are the passes. Where the outermost ranges have none inside, a pass begins with each repetition of the first of
// them; if all have one name, each is a pass. A step is an innermost range; its name is the path below the pass. Work
// that was launched beside the inner ranges is the step [Self] of the range. One range alone, which comes once, is no
// pass unless match asked for it.
//
// Work of a CUDA graph is in the ranges around its launch, and within them in those that were around the capture of its
// node, if the recording says how its nodes were made. Without ranges around its launch, each launch is a pass.
//
// The trace is changed in place and attributed again.
func OfRanges(t *traces.Trace, match *regexp.Regexp) bool {
	if Has(t) {
		return false
	}
	r := &ranges{trace: t, match: match, spans: map[inLaunch]*span{}, next: traces.LastID(t.Events)}
	r.find()
	if len(r.top) == 0 {
		return false
	}
	if r.passes(); len(r.pass) == 0 {
		return false
	}
	r.apply()
	return true
}

// ranges is the state of OfRanges.
type ranges struct {
	trace *traces.Trace
	match *regexp.Regexp
	spans map[inLaunch]*span
	next  uint64  // the highest ID of an event
	top   []*span // outermost, in order of time
	pass  []pass
}

// pass is a pass to be made.
type pass struct {
	phase string
	event *traces.Event // the range
	made  bool          // the event is not of the trace
	spans []*span       // its one range, or several that it consists of
}

// counts reports whether a range may name a stage.
func (r *ranges) counts(e *traces.Event) bool {
	switch {
	case e.Kind != traces.KindRange || e.Lane.Kind != traces.LaneThread || e.WarmUp || strings.TrimSpace(e.Name) == "":
		return false
	case r.match != nil:
		return r.match.MatchString(e.Name)
	}
	return e.OfProgram()
}

// inLaunch is a range by its ID; one around a capture is that of one launch of the graph.
type inLaunch struct {
	launch traces.Correlation
	id     uint64
}

// deepest bounds how many ranges are around one another: damage could make a ring of parents.
const deepest = 1000

// find makes spans of the ranges around the launches of work.
func (r *ranges) find() {
	index, nodes := r.trace.Index(), traces.NodesOf(r.trace.Header, r.trace.Events)
	around := func(parent uint64) (found []*traces.Event) { // from the innermost
		for e := index.Range(parent); e != nil && len(found) < deepest; e = index.Parent(e) {
			if r.counts(e) {
				found = append(found, e)
			}
		}
		return found
	}
	for i := range r.trace.Events {
		work := &r.trace.Events[i]
		if !work.Kind.IsGPU() {
			continue
		}
		var chain []*span // from the innermost
		launch := around(work.Parent)
		if parent := nodes.Captured(r.trace.Header, work); parent != 0 && work.Correlation != 0 {
			key := r.trace.Header.Correlate(work)
			for _, e := range around(parent) {
				if !slices.ContainsFunc(launch, func(l *traces.Event) bool { return l == e || phase(l.Name) == phase(e.Name) }) {
					chain = append(chain, r.inLaunch(key, e, cmp.Or(index.CallOf(work), work)))
				}
			}
		}
		for _, e := range launch {
			key := inLaunch{id: e.ID}
			if r.spans[key] == nil {
				r.spans[key] = &span{event: e, name: strings.TrimSpace(e.Name)}
			}
			chain = append(chain, r.spans[key])
		}
		for at, s := range chain {
			if at == 0 {
				s.direct = append(s.direct, work)
			}
			if at+1 < len(chain) && s.outer == nil && !within(chain[at+1], s) {
				s.outer = chain[at+1]
				s.outer.inner = append(s.outer.inner, s)
			}
		}
	}
	for _, s := range r.spans {
		slices.SortFunc(s.inner, compareSpans)
		if s.outer == nil && (r.match != nil || !s.event.NoPass()) {
			r.top = append(r.top, s)
		}
	}
	slices.SortFunc(r.top, compareSpans)
}

// within reports whether a span is another, or inside it.
func within(s, other *span) bool {
	for depth := 0; s != nil && depth < deepest; depth++ {
		if s == other {
			return true
		}
		s = s.outer
	}
	return s != nil
}

// inLaunch returns the span of a range around a capture in one launch of the graph, with the time of the call that
// launched it.
func (r *ranges) inLaunch(launch traces.Correlation, around, call *traces.Event) *span {
	key := inLaunch{launch, around.ID}
	if s := r.spans[key]; s != nil {
		return s
	}
	r.next++
	e := traces.Plain(traces.KindRange, around.Lane, around.Name, call.Time, call.Duration)
	if call.Kind.IsCall() {
		e.Lane = traces.Thread(call.Lane.Process, call.Lane.ID)
	}
	e.ID, e.Domain = r.next, around.Domain
	s := &span{event: &e, made: true, name: strings.TrimSpace(around.Name)}
	r.spans[key] = s
	return s
}

func compareSpans(a, b *span) int {
	return cmp.Or(traces.Compare(a.event, b.event), cmp.Compare(a.event.ID, b.event.ID))
}

// The numbers of a pass in its name: "ProfilerStep#3", "step 3", "decode_3"; "batch: 3 loss"; all in brackets, as in
// "execute_32_context_1(sq512sk512)".
var (
	endNumber = lazyregexp.New(`[\s#:._-]*\d+$`)
	number    = lazyregexp.New(`(^|[^\pL\d.])\d+(?:\.\d+)?($|[^\pL\d])`)
	brackets  = lazyregexp.New(`\([^()]*\)`)
	digits    = lazyregexp.New(`\d+(?:\.\d+)?`)
)

// phase names the kind of a pass: "ProfilerStep", "batch: N loss".
func phase(name string) string {
	name = cmp.Or(endNumber().ReplaceAllString(name, ""), name)
	name = brackets().ReplaceAllStringFunc(name, func(in string) string { return digits().ReplaceAllString(in, "N") })
	for range 2 { // numbers share what is between them
		name = number().ReplaceAllString(name, "${1}N${2}")
	}
	return name
}

// passes divides the spans of each process into passes.
func (r *ranges) passes() {
	of := map[int64][]*span{}
	for _, s := range r.top {
		process := r.trace.Header.ProcessOf(s.event)
		of[process] = append(of[process], s)
	}
	for _, process := range slices.Sorted(maps.Keys(of)) {
		r.divide(of[process])
	}
}

// divide divides the spans of a process into passes.
func (r *ranges) divide(list []*span) {
	for inner := list; inner != nil; inner = r.unwrap(list) {
		list = inner
	}
	isOne := !slices.ContainsFunc(list, func(s *span) bool { return s.kind() != list[0].kind() })
	switch nested := slices.ContainsFunc(list, func(s *span) bool { return len(s.inner) > 0 }); {
	case !nested && isOne && len(list) == 1 && r.match == nil:
		return // says no more than that something ran
	case !nested && !isOne:
		r.flat(list)
		return
	}
	for _, s := range list {
		if s.made && s.outer != nil {
			s.event.Parent = s.outer.event.ID
		}
		r.pass = append(r.pass, pass{phase(s.name), s.event, s.made, []*span{s}})
	}
}

// kind is the name without numbers. Layers are numbered and no repetition.
func (s *span) kind() string {
	if traces.LayerOf(s.name) >= 0 {
		return s.name
	}
	return phase(s.name)
}

// unwrap replaces spans that are there once by the spans inside, if these repeat and have others inside; nil if there
// are none such.
func (r *ranges) unwrap(list []*span) []*span {
	times := map[string]int{}
	for _, s := range list {
		times[phase(s.name)]++
	}
	wraps := func(s *span) bool { return times[phase(s.name)] == 1 && s.repeats() }
	if !slices.ContainsFunc(list, wraps) {
		return nil
	}
	var out []*span
	for _, s := range list {
		if wraps(s) {
			out = append(out, s.inner...)
		} else {
			out = append(out, s)
		}
	}
	return out
}

// repeats reports whether a range inside, which has others inside, comes several times. Layers are numbered and no
// repetition.
func (s *span) repeats() bool {
	seen := map[string]bool{}
	for _, in := range s.inner {
		if traces.LayerOf(in.name) >= 0 || len(in.inner) == 0 {
			continue
		}
		if seen[phase(in.name)] {
			return true
		}
		seen[phase(in.name)] = true
	}
	return false
}

// flat makes passes of spans without others inside: one begins with each repetition of the first.
func (r *ranges) flat(list []*span) {
	for i, s := range list {
		if i == 0 || s.kind() == list[0].kind() {
			r.next++
			e := traces.Plain(traces.KindPass, s.event.Lane, "pass", s.event.Time, 0)
			e.ID, e.Parent, e.Domain = r.next, s.event.Parent, s.event.Domain
			r.pass = append(r.pass, pass{phase: "pass", event: &e, made: true})
		}
		p := &r.pass[len(r.pass)-1]
		p.spans = append(p.spans, s)
		p.event.Duration = max(0, s.event.End()-p.event.Time)
	}
}

// word is a name that a dot can join to others.
var word = lazyregexp.New(`^[\w.@()+]+$`)

// join appends a range's name to the path of those around it. Modules of PyTorch are often named by their whole path
// already.
func join(path, name string) string {
	switch {
	case path == "" || name == path || strings.HasPrefix(name, path+".") || strings.HasPrefix(name, path+"/"):
		return name
	case word().MatchString(path) && word().MatchString(name):
		return path + "." + name
	}
	return path + "/" + name
}

// aroundLayers are modules around the layers, whose names are no part of a stage's.
var aroundLayers = lazyregexp.New(`^(?:(?:_orig_mod|module|model|transformer|decoder|gpt|gpt2|net)\.)+`)

// stageName makes the name of a step of the path below its pass.
func stageName(path string) string {
	return cmp.Or(aroundLayers().ReplaceAllString(path, ""), path)
}

// owner is the range that work belongs to, and the name of its step.
type owner struct {
	work *traces.Event
	span *span
	name string
}

// foldCounters takes the number out of the names of ranges within passes where it counts on from pass to pass, as in
// "batch: 3 loss". A number that comes again in another pass is that of a part, such as a layer.
func (r *ranges) foldCounters() {
	in := map[string]int{}             // a pass of each name
	kinds := map[string]map[int]bool{} // the passes of each name without numbers
	repeats := map[string]bool{}       // of these, those with a name that is in several passes
	var walk func(list []*span, each func(*span))
	walk = func(list []*span, each func(*span)) {
		for _, s := range list {
			each(s)
			walk(s.inner, each)
		}
	}
	for n, p := range r.pass {
		walk(p.spans, func(s *span) {
			if s.event == p.event {
				return
			}
			before, seen := in[s.name]
			repeats[s.kind()] = repeats[s.kind()] || seen && before != n
			in[s.name] = n
			if kinds[s.kind()] == nil {
				kinds[s.kind()] = map[int]bool{}
			}
			kinds[s.kind()][n] = true
		})
	}
	for _, p := range r.pass {
		walk(p.spans, func(s *span) {
			if kind := s.kind(); len(kinds[kind]) > 1 && !repeats[kind] {
				s.name = kind
			}
		})
	}
}

// apply writes passes and steps into the trace.
func (r *ranges) apply() {
	r.foldCounters()
	h := r.trace.Header
	h.Plans = nil
	plans := map[string]int32{}
	tags := map[int32]map[string]int32{}
	var made []traces.Event
	for i := range r.pass {
		p := &r.pass[i]
		plan, known := plans[p.phase]
		if !known {
			plan = int32(len(h.Plans))
			plans[p.phase], tags[plan] = plan, map[string]int32{}
			h.Plans = append(h.Plans, traces.Plan{Phase: p.phase})
		}
		step := func(name string) int32 {
			tag, known := tags[plan][name]
			if !known {
				steps := &h.Plans[plan].Steps
				tag = int32(len(*steps))
				tags[plan][name] = tag
				layer := traces.LayerOf(name)
				*steps = append(*steps, traces.Step{Tag: int(tag), Name: name, Layer: layer, Slot: layer})
			}
			return tag
		}
		var owned []owner
		var walk func(s *span, path string, isPass bool)
		walk = func(s *span, path string, isPass bool) {
			s.event.Plan = plan
			name := s.name
			switch {
			case isPass && len(s.inner) > 0:
				name = Self
			case isPass:
				name = p.phase
			case !isPass:
				path = join(path, s.name)
				if name = stageName(path); len(s.inner) > 0 {
					name = join(name, Self)
				}
			}
			for _, work := range s.direct {
				owned = append(owned, owner{work, s, name})
			}
			for _, in := range s.inner {
				walk(in, path, false)
			}
			if len(s.inner) == 0 && !isPass {
				s.event.Kind = traces.KindStep
			}
		}
		p.event.Kind, p.event.Plan = traces.KindPass, plan
		for _, s := range p.spans {
			isPass := s.event == p.event
			if !isPass {
				s.event.Parent = p.event.ID
			}
			if s.made {
				s.adopt(p.event.ID)
			}
			walk(s, "", isPass)
		}
		slices.SortStableFunc(owned, func(a, b owner) int { return cmp.Compare(a.work.Time, b.work.Time) })
		for _, o := range owned {
			o.work.Plan, o.work.Step = plan, step(o.name)
			if o.span.event.Kind == traces.KindStep {
				o.span.event.Step = o.work.Step
			}
		}
		if p.made {
			made = append(made, *p.event)
		}
	}
	*r.trace = *traces.NewTrace(h, append(r.trace.Events, made...))
	ownRest(r.trace, Self)
}

// adopt makes a pass the parent of all work in a span.
func (s *span) adopt(pass uint64) {
	for _, work := range s.direct {
		work.Parent = pass
	}
	for _, in := range s.inner {
		in.adopt(pass)
	}
}

// ownRest gives work that was launched in a pass, but in no step, a step of the given name.
func ownRest(t *traces.Trace, name string) {
	changed := false
	for i := range t.Events {
		e := &t.Events[i]
		if e.Kind != traces.KindKernel && e.Kind != traces.KindGraph || e.Plan < 0 || e.Step >= 0 {
			continue
		}
		steps := &t.Header.Plans[e.Plan].Steps
		at := slices.IndexFunc(*steps, func(s traces.Step) bool { return s.Name == name })
		if at < 0 {
			at = len(*steps)
			*steps = append(*steps, traces.Step{Tag: at, Name: name, Layer: -1, Slot: -1})
		}
		e.Step, changed = int32(at), true
	}
	if changed {
		t.Attribution = traces.Attribute(t.Header, t.Events)
	}
}
