package cpu

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"gpt2scope/gpt2"
	"gpt2scope/record"
	"gpt2scope/traces"
)

// recorded runs a few passes of a small model while they are recorded.
func recorded(t *testing.T, b *Backend) (*gpt2.Session, *runner, *record.Recorder) {
	t.Helper()
	m := newModel(t, "random:L=2,C=32,NH=2,V=257,T=64")
	s := newSession(t, m, b, gpt2.Options{})
	rec := record.New("test", "1")
	must(t, s.Record(rec))
	for _, err := range s.Generate(t.Context(), make([]int32, 40), gpt2.Generation{Tokens: 5, IgnoreEOS: true}) {
		must(t, err)
	}
	return s, s.Runner().(*runner), rec
}

// TestStampsOfSteps: a step of a worker is from its first kernel's begin to its last kernel's end, of the stamps that
// this worker wrote in this pass; a pass that failed has no events.
func TestStampsOfSteps(t *testing.T) {
	b := newBackend(t, Options{Threads: 2})
	s, r, profile := recorded(t, b)
	rec := r.recording
	if len(rec.passes) != 5 {
		t.Fatalf("%d passes are recorded, want 5", len(rec.passes))
	}
	base := now()
	stamp := func(pass, kernel, worker int) int64 { return base + int64(1e6*pass+1000*kernel+10*worker) }
	type span struct {
		name     string
		worker   int
		from, to int64
	}
	var want []span
	several := false
	for p := range rec.passes {
		n := &rec.passes[p]
		threads := n.c.program.pool.threads
		for k := range n.c.program.n {
			for w := range threads {
				rec.noted[n.at+(k*threads+w)*2], rec.noted[n.at+(k*threads+w)*2+1] = stamp(p, k, w), stamp(p, k, w)+500
			}
		}
		n.begin, n.sample, n.end = stamp(p, 0, 0)-1, stamp(p, n.c.program.n, 0), stamp(p, n.c.program.n, 0)+100
		switch p {
		case 1: // cancelled while it ran
			n.at = -1
			continue
		case 3: // failed after it ran
			n.end = 0
			continue
		}
		for i, step := range n.c.plan.Steps {
			from, to := n.c.from[i], n.c.from[i+1]
			several = several || to-from > 1
			for w := 0; w < threads && from < to; w++ {
				want = append(want, span{step.Name(), w, stamp(p, from, w), stamp(p, to-1, w) + 500})
			}
		}
		want = append(want, span{"sample", 0, n.sample, n.end})
	}
	if !several {
		t.Fatal("no step has several kernels")
	}
	lanes := map[traces.Lane]int{rec.worker(0): 0, rec.worker(1): 1}
	must(t, s.StopRecording())
	var got []span
	passes, origin := 0, profile.OfMonotonic(0)
	for _, e := range profile.Trace().Events {
		switch e.Kind {
		case traces.KindPass:
			passes++
		case traces.KindStep:
			got = append(got, span{e.Name, lanes[e.Lane], e.Time - origin, e.End() - origin})
		}
	}
	order := func(a, b span) int { return strings.Compare(fmt.Sprint(a.from, a), fmt.Sprint(b.from, b)) }
	slices.SortFunc(got, order)
	slices.SortFunc(want, order)
	if passes != 3 || !slices.Equal(got, want) {
		t.Errorf("%d passes, want 3; steps\n%v, want\n%v", passes, got, want)
	}
}

// TestRecordingIsBounded: passes beyond the bound are counted, not kept.
func TestRecordingIsBounded(t *testing.T) {
	b := newBackend(t, Options{Threads: 2})
	s, r, profile := recorded(t, b)
	kept := len(r.recording.passes)
	r.recording.events = maxRecorded - 3
	for range 2 {
		if _, err := s.Logits(t.Context(), []int32{1}, gpt2.LogitsLast); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(r.recording.passes); n != kept || r.recording.dropped != 2 {
		t.Errorf("%d passes are kept and %d dropped, want %d and 2", n, r.recording.dropped, kept)
	}
	must(t, s.StopRecording())
	if h := profile.Trace().Header; len(h.Dropped) != 1 {
		t.Errorf("the header says of dropped passes %v", h.Dropped)
	}
}

// TestCPUShare: a recording is incomplete if its threads had less than three quarters of their cores' time, unless it
// is too short to tell.
func TestCPUShare(t *testing.T) {
	for _, v := range []struct {
		wall, used time.Duration
		busy       string // what the header says; "" for nothing
	}{
		{100 * time.Millisecond, 151 * time.Millisecond, ""}, // of two threads 76 %
		{100 * time.Millisecond, 140 * time.Millisecond, "70 %"},
		{40 * time.Millisecond, 20 * time.Millisecond, ""}, // too short
	} {
		rec := recording{profile: record.New("test", "1"), used: int64(v.used)}
		half := int64(v.wall / 2)
		rec.passes = []passNote{{begin: 1000, end: 1000 + half}, {begin: 5000, end: 0},
			{begin: 9000 + half, end: 9000 + 2*half}}
		rec.noteCores(2)
		said := strings.Join(rec.profile.Trace().Header.Incomplete, "; ")
		if (said != "") != (v.busy != "") || !strings.Contains(said, v.busy) {
			t.Errorf("%v of %v on two threads: %q, want %q", v.used, v.wall, said, v.busy)
		}
	}
	// What the process used before a pass does not count for it.
	for processTime() < 20*time.Millisecond {
		runtime.Gosched()
	}
	rec := recording{from: int64(processTime())}
	n := passNote{c: new(compiled)}
	n.done(&rec)
	if most := int64(processTime()) - rec.from; rec.used > most {
		t.Errorf("a pass used %v of processor time, at most %v", time.Duration(rec.used), time.Duration(most))
	}
}
