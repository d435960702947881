package window

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gpt2scope/traces"
	"gpt2scope/traces/internal/fixtures"
)

// TestQueueDepth compares with counting at each nanosecond.
func TestQueueDepth(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 2))
		var events []traces.Event
		type span struct{ from, to int64 }
		var spans []span
		for i := range uint64(1 + r.IntN(15)) {
			call := r.Int64N(100)
			back := call + r.Int64N(20)
			start := call + r.Int64N(60)
			end := start + r.Int64N(60)
			launched := fixtures.Launched(i+1, call, back, start, end)
			if i > 0 && r.IntN(4) == 0 { // its call is not recorded
				launched, back = launched[1:], start
			}
			events = append(events, launched...)
			spans = append(spans, span{min(back, start), end})
		}
		traces.Sort(events)
		var counters []traces.Event
		count := func(e traces.Event) { counters = append(counters, e) }
		QueueDepth(fixtures.Trace(&traces.Header{}, events...), count)
		if !slices.IsSortedFunc(counters, func(a, b traces.Event) int { return traces.Compare(&a, &b) }) {
			t.Fatalf("seed %d: the counters are not in order", seed)
		}
		depthAt := func(now int64) (n int) {
			for _, s := range spans {
				if s.from <= now && now < s.to {
					n++
				}
			}
			return n
		}
		sum, deepest := 0, 0
		for now := int64(20); now < 80; now++ {
			sum, deepest = sum+depthAt(now), max(deepest, depthAt(now))
		}
		paired := slices.ContainsFunc(events, func(e traces.Event) bool { return e.Kind.IsCall() })
		mean, most := New(fixtures.Trace(&traces.Header{}, events...), 0).DepthOver(Interval{20, 80})
		if paired && (most != deepest || math.Abs(mean-float64(sum)/60) > 1e-9) {
			t.Fatalf("seed %d: the depth is %g in the mean, not %d / 60, and at most %d, not %d", seed, mean, sum, most, deepest)
		}
		at, value := 0, 0.0
		for now := int64(-1); now < 300; now++ {
			for ; at < len(counters) && counters[at].Time <= now; at++ {
				c := &counters[at]
				if value = c.Value; c.Kind != traces.KindCounter || c.Name != "queue depth" || c.Lane.Device != 0 || c.Lane.Kind != traces.LaneCounter {
					t.Fatalf("seed %d: %+v", seed, c)
				}
			}
			if value != float64(depthAt(now)) {
				t.Fatalf("seed %d: at %d the depth is %g, not %d", seed, now, value, depthAt(now))
			}
		}
		all := len(counters)
		if QueueDepth(fixtures.Trace(&traces.Header{}, append(events, counters...)...), count); len(counters) > all {
			t.Fatal("counters were made twice")
		}
	}
}

func TestIntervals(t *testing.T) {
	if u := Union([]Interval{{20, 30}, {0, 10}, {10, 15}, {22, 25}}); !slices.Equal(u, []Interval{{0, 15}, {20, 30}}) {
		t.Errorf("the union is %v", u)
	}
	u := []Interval{{0, 15}, {20, 30}}
	for x, want := range map[Interval]int64{{5, 25}: 15, {0, 40}: 25, {22, 24}: 2, {15, 20}: 0, {30, 90}: 0, {-9, 1}: 1} {
		if got := Covered(u, x); got != want {
			t.Errorf("of %v %d are covered, want %d", x, got, want)
		}
	}
	if n := Length([]Interval{{0, 10}, {5, 12}, {12, 13}}); n != 13 {
		t.Errorf("overlapping intervals are %d long together, want 13", n)
	}
}

// TestBounds: what a window begins and ends with, where events touch its ends.
func TestBounds(t *testing.T) {
	thread, stream := traces.Thread(1, 1), traces.Stream(1, 0, 1, 7)
	warmUp := traces.Plain(traces.KindRange, thread, "warm-up", 0, 100)
	warmUp.WarmUp = true
	pass := func(id uint64, from, to int64) traces.Event {
		e := traces.Plain(traces.KindPass, thread, "decode step", from, to-from)
		e.ID, e.Plan = id, 0
		return e
	}
	kernel := func(parent uint64, from, to int64) traces.Event {
		e := traces.Plain(traces.KindKernel, stream, "k", from, to-from)
		if e.Parent = parent; parent != 0 {
			e.Plan, e.Step = 0, 0
		}
		return e
	}
	call := func(name string, from, to int64) traces.Event {
		e := traces.Plain(traces.KindRuntime, traces.API(1, 1), name, from, to-from)
		e.Correlation = 9
		return e
	}
	launched := kernel(2, 160, 190)
	launched.Correlation = 9
	h := &traces.Header{Plans: []traces.Plan{{Phase: "decode step", Steps: []traces.Step{{Name: "a"}}}}}
	w := New(fixtures.Trace(h, warmUp, pass(1, 50, 100), pass(2, 100, 150), call("outer", 110, 130), call("inner", 112, 120), launched, pass(3, 200, 210),
		kernel(3, 215, 250), kernel(0, 300, 400)), 0)
	if len(w.WarmUp) != 1 || len(w.Passes) != 2 || w.Passes[0].Event.Time != 100 {
		t.Fatalf("%d passes of warm-up and %d others: one that begins when the warm-up ends is none of it", len(w.WarmUp), len(w.Passes))
	}
	if w.Span != (Interval{100, 250}) {
		t.Errorf("the span is %v; work of no pass after it does not count", w.Span)
	}
	if first, second := w.Passes[0].Time, w.Passes[1].Time; first != (Interval{100, 190}) || second != (Interval{190, 250}) {
		t.Errorf("the passes have %v and %v", first, second)
	}
	for x, want := range map[Interval]int64{{100, 190}: 100, {90, 120}: 0, {180, 195}: 0, {195, 250}: 200, {240, 260}: 0} {
		got := int64(0)
		if p := w.PassDuring(x); p != nil {
			got = p.Time
		}
		if got != want {
			t.Errorf("%v lies in the pass at %d, want %d (0: none)", x, got, want)
		}
	}
	if c := w.CallOf(w.Work[0]); c == nil || c.Name != "outer" {
		t.Errorf("the work was launched by %+v, want the outer call", c)
	}
}

// model makes the kernels of passes one after another, each of so many layers. The host waits
// 5 us between passes. scale makes the kernels of a pass longer.
func model(layers, passes int, scale func(pass int) int64) []traces.Event {
	stream := traces.Stream(1, 0, 1, 7)
	var events []traces.Event
	now := int64(1000)
	add := func(name string, ns int64) {
		events = append(events, traces.Plain(traces.KindKernel, stream, name, now, ns))
		now += ns + 200
	}
	for range 40 { // of loading
		add("fill", 500)
	}
	for pass := range passes {
		now += 5000
		s := scale(pass)
		add("embed", 1000*s)
		for range layers {
			for _, name := range []string{"norm", "gemm", "attention", "gemm", "add", "norm", "gemm", "gelu", "gemm", "add"} {
				add(name, 1000*s)
			}
		}
		add("norm", 1000*s)
		add("head", 3000*s)
	}
	return events
}

// TestSteadyByRepetition: passes are found by the names of kernels alone, with one layer and
// with many, and the warm-up by the times of the passes.
func TestSteadyByRepetition(t *testing.T) {
	for _, layers := range []int{1, 2, 12, 48} {
		for _, passes := range []int{4, 5, 35} {
			for _, slow := range []int{0, 1} {
				events := model(layers, passes, func(pass int) int64 {
					if pass < slow {
						return 20
					}
					return 1
				})
				w := New(traces.NewTrace(&traces.Header{}, events), 0)
				s := w.Steady()
				what := fmt.Sprintf("%d layers, %d passes, %d of them slow", layers, passes, slow)
				if s.Source != FromRepetition || len(s.WarmUp) != slow || len(s.Passes) != passes-slow {
					t.Errorf("%s: by %q, %d passes, %d of warm-up", what, s.Source, len(s.Passes), len(s.WarmUp))
					continue
				}
				first := 40 + slow*(10*layers+3)
				if from := w.Work[first].Time; s.From != from {
					t.Errorf("%s: the steady part begins at %d, not with the embedding at %d", what, s.From, from)
				}
				if last := w.Work[len(w.Work)-1].End(); s.To != last {
					t.Errorf("%s: it ends at %d, not %d", what, s.To, last)
				}
			}
		}
	}
}

// TestNoRepetition: kernels that do not repeat make no passes, and all work counts.
func TestNoRepetition(t *testing.T) {
	var events []traces.Event
	x := uint32(1)
	for i := range int64(300) {
		x = x*1664525 + 1013904223
		events = append(events, traces.Plain(traces.KindKernel, traces.Stream(1, 0, 1, 7), fmt.Sprint("k", x>>24), i*100, 50))
	}
	w := New(traces.NewTrace(&traces.Header{}, events), 0)
	if s := w.Steady(); s.Source != FromNothing || len(s.Passes) != 0 || s.Interval != w.Whole() {
		t.Errorf("%d passes by %q in %v of %v", len(s.Passes), s.Source, s.Interval, w.Whole())
	}
}

// TestSteadyWithoutSome: where one kernel in a hundred is lost, passes are still found.
func TestSteadyWithoutSome(t *testing.T) {
	for _, layers := range []int{1, 2, 12, 48} {
		for seed := range uint64(6) {
			random := rand.New(rand.NewPCG(seed, 1))
			kept := slices.DeleteFunc(model(layers, 20, func(int) int64 { return 1 }), func(traces.Event) bool { return random.IntN(100) == 0 })
			if s := New(traces.NewTrace(&traces.Header{}, kept), 0).Steady(); len(s.Passes)+len(s.WarmUp) < 17 || len(s.Passes) > 20 {
				t.Errorf("%d layers, seed %d: %d passes of 20 are found, and %d of warm-up", layers, seed, len(s.Passes), len(s.WarmUp))
			}
		}
	}
}

// TestSteadyOfProcesses: the kernels of another process between those of one do not hide its passes.
func TestSteadyOfProcesses(t *testing.T) {
	events := model(2, 10, func(int) int64 { return 1 })
	random := rand.New(rand.NewPCG(1, 3))
	for range 100 {
		events = append(events, traces.Plain(traces.KindKernel, traces.Stream(2, 0, 2, 7), "other", random.Int64N(300_000), 500))
	}
	if s := New(traces.NewTrace(&traces.Header{}, events), 0).Steady(); len(s.Passes) != 10 {
		t.Errorf("%d passes of 10 are found", len(s.Passes))
	}
}

// TestWarmUpOfRanges: of the passes that another program names, those at the beginning that take
// far longer are warm-up; the passes of gpt2scope and those of several kinds are left as they are.
func TestWarmUpOfRanges(t *testing.T) {
	thread := traces.Thread(1, 1)
	make := func(domain string, names ...string) *Window {
		var events []traces.Event
		now := int64(0)
		for i, name := range names {
			ns := int64(1000)
			if i == 0 {
				ns = 9000
			}
			e := traces.Plain(traces.KindPass, thread, name, now, ns)
			e.Domain, e.ID, e.Plan = domain, uint64(i+1), 0
			k := traces.Plain(traces.KindKernel, traces.Stream(1, 0, 1, 7), "k", now+100, ns-200)
			k.Parent, k.Plan = e.ID, 0
			events = append(events, e, k)
			now += ns
		}
		return New(traces.NewTrace(&traces.Header{}, events), 0)
	}
	all := []string{"forward", "forward", "forward", "forward", "forward"}
	w := make("", all...)
	if len(w.WarmUp) != 1 || len(w.Passes) != 4 || w.Span.From != 9000 || w.Passes[0].Time.From != 9000 {
		t.Errorf("%d of warm-up, %d passes from %d", len(w.WarmUp), len(w.Passes), w.Span.From)
	}
	if i, ok := w.PassIndex(w.Passes[3].Event); !ok || i != 3 {
		t.Errorf("the last pass is %d (%v)", i, ok)
	}
	if w := make(traces.Domain, all...); len(w.WarmUp) != 0 || len(w.Passes) != 5 {
		t.Errorf("of gpt2scope: %d of warm-up", len(w.WarmUp))
	}
	if w := make("", "prefill", "decode", "decode", "decode", "decode"); len(w.WarmUp) != 0 {
		t.Errorf("the prefill is warm-up")
	}
}

// TestFewPasses: the layers of one or two passes are no passes.
func TestFewPasses(t *testing.T) {
	for _, layers := range []int{4, 12, 48} {
		events := model(layers, 2, func(int) int64 { return 1 })[40:] // without loading
		for _, n := range []int{len(events), len(events) / 2} {
			w := New(traces.NewTrace(&traces.Header{}, events[:n]), 0)
			if s := w.Steady(); layers > 4 && len(s.Passes) > layers || n == len(events) && s.Interval != w.Whole() {
				t.Errorf("%d layers, %d kernels: %d passes by %q", layers, n, len(s.Passes), s.Source)
			}
		}
	}
}

// TestLengths: a longer prompt before shorter ones is no warm-up, and a kernel that is in every second
// pass alone does not make two passes one.
func TestLengths(t *testing.T) {
	for what, tokens := range map[string][]int64{"a longer one first": {4, 1, 1, 1, 1}, "a shorter one first": {1, 4, 4, 4, 4}, "alike": {1, 1, 1, 1, 1, 1}} {
		stream := traces.Stream(1, 0, 1, 7)
		var events []traces.Event
		now := int64(1000)
		for pass, n := range tokens {
			now += 5000
			names := []string{"embed"}
			for range 12 {
				names = append(names, "norm", "gemm", "attention", "gemm", "add", "norm", "gemm", "gelu", "gemm", "add")
			}
			if names = append(names, "head"); pass%2 == 0 {
				names = append(names, "even")
			}
			for _, name := range names {
				e := traces.Plain(traces.KindKernel, stream, name, now, 1000*n)
				e.Grid = [3]int32{int32(32 * n), 1, 1}
				events = append(events, e)
				now += e.Duration + 200
			}
		}
		s := New(traces.NewTrace(&traces.Header{}, events), 0).Steady()
		if s.Source != FromRepetition || len(s.Passes) != len(tokens) || len(s.WarmUp) != 0 {
			t.Errorf("%s: by %q, %d passes, %d of warm-up; want %d and 0", what, s.Source, len(s.Passes), len(s.WarmUp), len(tokens))
		}
	}
}

// TestLeading: a pass is warm-up if it takes more than 1.5 times the median of those after it, in proportion to its blocks.
func TestLeading(t *testing.T) {
	for _, c := range []struct {
		lengths, blocks []int64
		want            int
	}{
		{[]int64{151, 100, 100, 100, 100}, nil, 1},
		{[]int64{149, 100, 100, 100, 100}, nil, 0},
		{[]int64{900, 160, 100, 100, 100, 100}, nil, 2},
		{[]int64{290, 100, 100, 100, 100}, []int64{20, 10, 10, 10, 10}, 0}, // a longer prompt
		{[]int64{310, 100, 100, 100, 100}, []int64{20, 10, 10, 10, 10}, 1},
		{[]int64{900, 100, 100}, nil, 0}, // too few to compare with
	} {
		var times []Interval
		for _, ns := range c.lengths {
			times = append(times, Interval{0, ns})
		}
		if got := leading(times, c.blocks); got != c.want {
			t.Errorf("of passes that take %v, with %v blocks, %d are warm-up, not %d", c.lengths, c.blocks, got, c.want)
		}
	}
}
