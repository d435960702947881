package window

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gpt2scope/traces"
	"gpt2scope/traces/internal/fixtures"
)

// TestNamesAreNoFacts: warm-up and waits are what the fields say, whatever names are.
func TestNamesAreNoFacts(t *testing.T) {
	thread, api := traces.Thread(1, 1), traces.API(1, 1)
	renamed := traces.Plain(traces.KindRange, thread, "practice", 0, 100)
	renamed.WarmUp = true
	poll := traces.Plain(traces.KindRuntime, api, "poll", 310, 20)
	poll.Wait = traces.WaitSync
	events := []traces.Event{renamed, traces.Plain(traces.KindPass, thread, "prefill", 10, 50), traces.Plain(traces.KindRange, thread, "warm-up", 200, 100),
		traces.Plain(traces.KindPass, thread, "prefill", 210, 50), traces.Plain(traces.KindRuntime, api, "cudaStreamSynchronize", 300, 5), poll}
	w := New(traces.NewTrace(&traces.Header{}, events), -1)
	if len(w.WarmUp) != 1 || w.WarmUp[0].Time != 10 || len(w.Passes) != 1 || w.Passes[0].Event.Time != 210 {
		t.Errorf("%d passes of warm-up and %d others", len(w.WarmUp), len(w.Passes))
	}
	if want := []Wait{{Interval: Interval{From: 310, To: 330}, For: traces.WaitSync}}; !slices.Equal(w.Waits, want) {
		t.Errorf("waits %+v, not %+v", w.Waits, want)
	}
}

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
		counters := QueueDepth(fixtures.Trace(&traces.Header{}, events...))
		if !slices.IsSortedFunc(counters, traces.Compare) {
			t.Fatalf("seed %d: the counters are not in order", seed)
		}
		whole := fixtures.Trace(&traces.Header{}, events...)
		sum, deepest := 0, 0
		for now := int64(20); now < 80; now++ {
			depth := 0
			for _, s := range spans {
				if s.from <= now && now < s.to {
					depth++
				}
			}
			sum, deepest = sum+depth, max(deepest, depth)
		}
		paired := slices.ContainsFunc(events, func(e traces.Event) bool { return e.Kind.IsCall() })
		if mean, most := New(whole, 0).DepthOver(Interval{20, 80}); paired && (most != deepest || math.Abs(mean-float64(sum)/60) > 1e-9) {
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
			want := 0
			for _, s := range spans {
				if s.from <= now && now < s.to {
					want++
				}
			}
			if value != float64(want) {
				t.Fatalf("seed %d: at %d the depth is %g, not %d", seed, now, value, want)
			}
		}
		if again := QueueDepth(fixtures.Trace(&traces.Header{}, append(events, counters...)...)); again != nil {
			t.Fatal("counters were made twice")
		}
	}
	if counters := QueueDepth(fixtures.Trace(&traces.Header{}, traces.Plain(traces.KindKernel, traces.Stream(1, 0, 1, 7), "k", 0, 1))); counters != nil {
		t.Errorf("without calls: %+v", counters)
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

// TestSweep: each ns of the window has one owner, also of work that runs over its ends.
func TestSweep(t *testing.T) {
	stream := traces.Stream(1, 0, 1, 7)
	var events []traces.Event
	for _, x := range []Interval{{0, 40}, {5, 110}, {90, 105}, {130, 140}, {135, 170}, {190, 260}, {210, 220}} {
		events = append(events, traces.Plain(traces.KindKernel, stream, "k", x.From, x.Length()))
	}
	w := New(traces.NewTrace(&traces.Header{}, events), 0)
	type visit struct{ gap, own Interval }
	for x, want := range map[Interval][]visit{
		{100, 200}: {{Interval{100, 100}, Interval{100, 110}}, {Interval{110, 110}, Interval{110, 110}}, {Interval{110, 130}, Interval{130, 140}},
			{Interval{140, 140}, Interval{140, 170}}, {Interval{170, 190}, Interval{190, 200}}},
		{150, 180}: {{Interval{150, 150}, Interval{150, 170}}},
		{172, 188}: nil,
	} {
		var got []visit
		rest := w.Sweep(x, func(_, _ *traces.Event, gap, own Interval) { got = append(got, visit{gap, own}) })
		if !slices.Equal(got, want) {
			t.Errorf("%v is %v, want %v", x, got, want)
		}
		sum := rest.Length()
		for _, v := range got {
			sum += v.gap.Length() + v.own.Length()
		}
		if sum != x.Length() {
			t.Errorf("%v: gaps and work are %d ns", x, sum)
		}
	}
}
