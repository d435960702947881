package pprof

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"gpt2scope/internal/require"
	"gpt2scope/traces"
	"gpt2scope/traces/internal/fixtures"
	"gpt2scope/traces/load"
	"gpt2scope/traces/tables"
)

// profiled writes a profile of a trace and reads it back.
func profiled(t *testing.T, tr *traces.Trace) (*profile.Profile, []byte) {
	t.Helper()
	made := require.Value(Profile(tr, -1))(t)
	var b bytes.Buffer
	require.NoError(t, made.Write(&b))
	p := require.Value(profile.Parse(bytes.NewReader(b.Bytes())))(t)
	return p, b.Bytes()
}

// frames returns the names of a stack, root first.
func frames(s *profile.Sample) string {
	var names []string
	for _, l := range s.Location {
		names = append([]string{l.Line[0].Function.Name}, names...)
	}
	return strings.Join(names, " / ")
}

// TestProfile: the profile has the rows of the stage table, and sums to wall time.
func TestProfile(t *testing.T) {
	for _, path := range []string{"../samples/eager.sqlite", "../samples/graph.sqlite"} {
		tr := require.Value(load.Load(path))(t)
		table := require.Value(tables.Summarize(tr, tables.ByStage, -1))(t)
		p, _ := profiled(t, tr)
		type key struct{ phase, name string }
		sums, counts := map[key]int64{}, map[key]int64{}
		total := int64(0)
		for _, s := range p.Sample {
			names := strings.Split(frames(s), " / ")
			total += s.Value[0]
			if names[0] != traces.Domain {
				t.Errorf("%s: the root of %q", path, names)
			}
			var k key
			switch at := len(names) - 2; {
			case names[1] == "idle":
				k = key{"", "idle: " + names[2]}
			case len(names) > 3 && names[2] == "idle":
				k = key{names[1], "idle: " + names[3]}
			case len(names) > 3:
				k = key{names[1], names[at]}
				if s.Label["stage"][0] != names[at] || s.Label["phase"][0] != names[1] {
					t.Errorf("%s: %q has labels %v", path, names, s.Label)
				}
				if strings.HasPrefix(names[at], "h.0.") != (names[at-1] == "layer 0") {
					t.Errorf("%s: %q has the wrong layer", path, names)
				}
			}
			sums[k] += s.Value[0]
			counts[k] += s.Value[1]
		}
		if total != table.Wall || p.DurationNanos != table.Wall || p.DefaultSampleType != "time" {
			t.Errorf("%s: the profile sums to %d ns of %d, its type is %q", path, total, table.Wall, p.DefaultSampleType)
		}
		n := 0
		for _, r := range table.Rows {
			k := key{r.Phase, r.Name}
			switch {
			case r.Kind == tables.RowIdle:
				k.name = "idle: " + r.Name
			case r.Kind == tables.RowResidual:
				k = key{} // what fits no other
			case r.Kind != tables.RowWork:
				continue
			}
			n++
			if sums[k] != r.Exclusive || r.Kind == tables.RowWork && counts[k] != int64(r.Kernels) {
				t.Errorf("%s: %v has %d ns in %d, in the table %d in %d", path, k, sums[k], counts[k], r.Exclusive, r.Kernels)
			}
		}
		if n < 16 {
			t.Errorf("%s: only %d rows are compared", path, n)
		}
	}
}

// TestProfileOther: the CPU, where stages are leaves, and a trace without passes.
func TestProfileOther(t *testing.T) {
	h := fixtures.Plan("wte+wpe", "h.3.ln_1")
	h.Plans[0].Steps[1].Slot = 5
	var events []traces.Event
	for _, e := range fixtures.Passes(h, 0, 3, func(int, int) int64 { return 100 }, nil) {
		if e.Kind.IsRange() {
			events = append(events, e)
		}
	}
	p, _ := profiled(t, fixtures.Trace(h, events...))
	got := map[string][]int64{}
	for _, s := range p.Sample {
		got[frames(s)] = s.Value
	}
	if v := got["gpt2scope / decode step / layer 3 in slot 5 / h.3.ln_1"]; len(v) != 2 || v[0] != 30 || v[1] != 3 {
		t.Errorf("on the CPU: %v", got)
	}
	if v := got["gpt2scope / decode step / wte+wpe"]; len(v) != 2 || v[0] != 30 {
		t.Errorf("on the CPU: %v", got)
	}

	p, _ = profiled(t, fixtures.Trace(&traces.Header{Recorder: traces.RecorderKineto},
		append(fixtures.Launched(1, 0, 5, 10, 30), fixtures.Launched(2, 40, 50, 60, 70)...)...))
	got = map[string][]int64{}
	for _, s := range p.Sample {
		got[frames(s)] = s.Value
	}
	if got["gpt2scope / k1"][0] != 20 || got["gpt2scope / k2"][0] != 10 || got["gpt2scope / idle / host late"][0] != 10 {
		t.Errorf("without passes: %v", got)
	}
	if _, err := Profile(fixtures.Trace(h, fixtures.Launched(1, 0, 1, 2, 3)...), 7); err == nil {
		t.Error("a profile of a device that is not there")
	}
	lost := traces.Plain(traces.KindKernel, traces.Stream(1, 0, 1, 7), "lost", 10, 5)
	if p, _ := profiled(t, fixtures.Trace(&traces.Header{Recorder: traces.RecorderCUPTI}, lost)); !strings.Contains(strings.Join(p.Comments, "\n"),
		"shares mislead") {
		t.Errorf("an incomplete trace has the comments %q", p.Comments)
	}
}
