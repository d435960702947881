package stages

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"gpt2scope/traces"
)

// Self ends the name of the step of work that was launched in a range, but in none of the
// ranges inside it that are steps.
const Self = "self"

// span is a range that caused work.
type span struct {
	event  *traces.Event
	name   string // without the number at its end if it is a pass
	inner  []*span
	outer  *span
	direct []*traces.Event // work launched in it and in no inner span
}

// OfRanges makes passes and steps of the ranges of a trace that has none, and reports whether
// there were any. A range whose name matches counts; match may be nil, and then all do that
// the program made itself.
//
// A pass is an outermost range that has ranges inside. If such a range is there once and the
// ranges inside it repeat, these are the passes. Where the outermost ranges have none inside,
// a pass begins with each repetition of the first of them; if all have one name, each is a
// pass. A step is an innermost range; its name is the path below the pass. Work that was
// launched beside the inner ranges is the step [Self] of the range. One range alone, which
// comes once, is no pass.
//
// The trace is changed in place and attributed again.
func OfRanges(t *traces.Trace, match *regexp.Regexp) bool {
	if Has(t) {
		return false
	}
	r := &ranges{trace: t, match: match, spans: map[uint64]*span{}}
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
	spans map[uint64]*span // by the range's ID
	top   []*span          // outermost, in order of time
	pass  []pass
}

// pass is a pass to be made.
type pass struct {
	phase string
	event *traces.Event // the range; nil for one that consists of several
	spans []*span
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

// find makes spans of the ranges around the launches of work.
func (r *ranges) find() {
	byID := map[uint64]*traces.Event{}
	for i := range r.trace.Events {
		if e := &r.trace.Events[i]; e.Kind.IsRange() && e.ID != 0 && e.Lane.Kind == traces.LaneThread {
			byID[e.ID] = e
		}
	}
	const deepest = 1000 // damage could make a ring of parents
	for i := range r.trace.Events {
		work := &r.trace.Events[i]
		if !work.Kind.IsGPU() {
			continue
		}
		var below *span
		e := byID[work.Parent]
		for depth := 0; e != nil && depth < deepest; depth++ {
			if r.counts(e) {
				s, known := r.spans[e.ID]
				if !known {
					s = &span{event: e, name: strings.TrimSpace(e.Name)}
					r.spans[e.ID] = s
				}
				if below == nil {
					s.direct = append(s.direct, work)
				} else if below.outer == nil {
					below.outer = s
					s.inner = append(s.inner, below)
				}
				if below = s; known {
					break // what is around it is known too
				}
			}
			e = byID[e.Parent]
		}
	}
	for _, s := range r.spans {
		slices.SortFunc(s.inner, compareSpans)
		if s.outer == nil {
			r.top = append(r.top, s)
		}
	}
	slices.SortFunc(r.top, compareSpans)
}

func compareSpans(a, b *span) int {
	return cmp.Or(traces.Compare(*a.event, *b.event), cmp.Compare(a.event.ID, b.event.ID))
}

// endNumber is the number of a pass in its name: "ProfilerStep#3", "step 3", "decode_3".
var endNumber = regexp.MustCompile(`[\s#:._-]*\d+$`)

// phase names the kind of a pass.
func phase(name string) string { return cmp.Or(endNumber.ReplaceAllString(name, ""), name) }

// passes divides the spans into passes.
func (r *ranges) passes() {
	list := r.top
	for {
		unwrapped := r.unwrap(list)
		if unwrapped == nil {
			break
		}
		list = unwrapped
	}
	isOne := !slices.ContainsFunc(list, func(s *span) bool { return s.name != list[0].name })
	switch nested := slices.ContainsFunc(list, func(s *span) bool { return len(s.inner) > 0 }); {
	case !nested && isOne && len(list) == 1:
		return // says no more than that something ran
	case !nested && !isOne:
		r.flat(list)
		return
	}
	for _, s := range list {
		r.pass = append(r.pass, pass{phase(s.name), s.event, []*span{s}})
	}
}

// unwrap replaces spans that are there once by the spans inside, if these repeat and have
// others inside; nil if there are none such.
func (r *ranges) unwrap(list []*span) []*span {
	times := map[string]int{}
	for _, s := range list {
		times[phase(s.name)]++
	}
	var out []*span
	found := false
	for _, s := range list {
		if times[phase(s.name)] == 1 && s.repeats() {
			out, found = append(out, s.inner...), true
		} else {
			out = append(out, s)
		}
	}
	if !found {
		return nil
	}
	return out
}

// repeats reports whether a range inside, which has others inside, comes several times. Layers
// are numbered and no repetition.
func (s *span) repeats() bool {
	seen := map[string]bool{}
	for _, in := range s.inner {
		if traces.LayerOf(in.name) >= 0 || len(in.inner) == 0 {
			continue
		}
		if name := phase(in.name); seen[name] {
			return true
		} else {
			seen[name] = true
		}
	}
	return false
}

// flat makes passes of spans without others inside: one begins with each repetition of the
// first.
func (r *ranges) flat(list []*span) {
	for i, s := range list {
		if i == 0 || s.name == list[0].name {
			r.pass = append(r.pass, pass{phase: "pass"})
		}
		p := &r.pass[len(r.pass)-1]
		p.spans = append(p.spans, s)
	}
}

// word is a name that a dot can join to others.
var word = regexp.MustCompile(`^[\w.@()+]+$`)

// join appends a range's name to the path of those around it. Modules of PyTorch are often
// named by their whole path already.
func join(path, name string) string {
	switch {
	case path == "" || name == path || strings.HasPrefix(name, path+".") || strings.HasPrefix(name, path+"/"):
		return name
	case word.MatchString(path) && word.MatchString(name):
		return path + "." + name
	}
	return path + "/" + name
}

// aroundLayers are modules around the layers, whose names are no part of a stage's.
var aroundLayers = regexp.MustCompile(`^(?:(?:_orig_mod|module|model|transformer|decoder|gpt|gpt2|net)\.)+`)

// stageName makes the name of a step of the path below its pass.
func stageName(path string) string {
	return cmp.Or(aroundLayers.ReplaceAllString(path, ""), path)
}

// owner is the range that work belongs to, and the name of its step.
type owner struct {
	work *traces.Event
	span *span
	name string
}

// apply writes passes and steps into the trace.
func (r *ranges) apply() {
	h := r.trace.Header
	h.Plans = nil
	plans := map[string]int32{}
	tags := map[int32]map[string]int32{}
	next := uint64(0)
	for i := range r.trace.Events {
		next = max(next, r.trace.Events[i].ID)
	}
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
		tagAll := func() {
			slices.SortStableFunc(owned, func(a, b owner) int { return cmp.Compare(a.work.Time, b.work.Time) })
			for _, o := range owned {
				o.work.Plan, o.work.Step = plan, step(o.name)
				if o.span.event.Kind == traces.KindStep {
					o.span.event.Step = o.work.Step
				}
			}
		}
		if p.event != nil {
			p.event.Kind = traces.KindPass
			walk(p.spans[0], "", true)
			tagAll()
			continue
		}
		first, last := p.spans[0].event, p.spans[len(p.spans)-1].event
		next++
		e := traces.Plain(traces.KindPass, first.Lane, p.phase, first.Time, max(0, last.End()-first.Time))
		e.ID, e.Plan, e.Parent, e.Domain = next, plan, first.Parent, first.Domain
		made = append(made, e)
		for _, s := range p.spans {
			s.event.Parent = next
			walk(s, "", false)
		}
		tagAll()
	}
	*r.trace = *traces.NewTrace(h, append(r.trace.Events, made...))
	ownRest(r.trace, Self)
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
