package exec

import (
	"slices"
	"strings"
	"testing"
	"time"

	"gpt2scope/cuda"
	"gpt2scope/gpt2"
	"gpt2scope/record"
	"gpt2scope/traces"
)

// What the first prompt loads is named and timed, in the statistics and in a recording; the same prompt loads nothing
// again.
func TestLoading(t *testing.T) {
	const each = 3 * time.Millisecond // of what the stub loads
	for _, recording := range []bool{false, true} {
		lib, _ := onStub(t, "STUB_LOADING=3000")
		b := backendOn(t, lib, Options{})
		s := session(t, randomModel(t, small), b, gpt2.Options{})
		rec := record.New("test", "1")
		if recording {
			must(t, s.Record(rec))
		}
		prompt := func() map[string]time.Duration {
			must(t, s.Reset())
			if _, err := s.Logits(t.Context(), make([]int32, 20), gpt2.LogitsLast); err != nil {
				t.Fatal(err)
			}
			loads := map[string]time.Duration{}
			for _, l := range s.Loads() {
				loads[l.What] = l.Time
			}
			return loads
		}
		first := prompt()
		// The library itself and its products; embedding, LayerNorm and attention.
		if first["cuBLASLt"] < 2*each || first["kernels"] < 3*each || len(first) != 2 {
			t.Errorf("recorded %t: the first prompt loaded %v", recording, first)
		}
		if took := s.Stats().PrefillTime; first["cuBLASLt"]+first["kernels"] > took {
			t.Errorf("loading took %v of %v", first, took)
		}
		if again := prompt(); len(again) != 0 {
			t.Errorf("recorded %t: the second prompt loaded %v", recording, again)
		}
		if !recording {
			continue
		}
		must(t, s.StopRecording())
		var ranges time.Duration
		var names []string
		for _, e := range rec.Trace().Events {
			if e.Kind == traces.KindRange && strings.HasPrefix(e.Name, "load ") {
				ranges += time.Duration(e.Duration)
				names = append(names, e.Name)
			}
		}
		slices.Sort(names)
		if want := []string{"load cuBLASLt", "load kernels"}; !slices.Equal(slices.Compact(names), want) || ranges != first["cuBLASLt"]+first["kernels"] {
			t.Errorf("ranges %q of %v in all, loaded %v", names, ranges, first)
		}
	}
}

// cuBLASLt is opened in the background for prompts of so many rows that products are its.
func TestOpenBLASAhead(t *testing.T) {
	lib, _ := onStub(t)
	b := backendOn(t, lib, Options{})
	if b.OpenBLASAhead(cuda.GEMVRows); lib.BLASVersion() != 0 {
		t.Error("cuBLASLt was opened for products that are not its")
	}
	b.OpenBLASAhead(cuda.GEMVRows + 1)
	for end := time.Now().Add(10 * time.Second); lib.BLASVersion() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("cuBLASLt was not opened")
		}
	}
}

// In mode persistent the first decode step loads the kernel when its work area is asked for, folds LayerNorms and is
// launched.
func TestLoadingPersistent(t *testing.T) {
	const each = 3 * time.Millisecond // of what the stub loads
	lib, _ := onStub(t, "STUB_LOADING=3000")
	b := backendOn(t, lib, Options{Mode: Persistent})
	s := session(t, randomModel(t, small), b, gpt2.Options{})
	loaded := func() (all time.Duration) {
		for range s.Generate(t.Context(), []int32{1}, gpt2.Generation{Tokens: 2}) {
			continue
		}
		for _, l := range s.Loads() {
			all += l.Time
		}
		return all
	}
	first := loaded()
	if first < 3*each || first > s.Stats().PrefillTime+s.Stats().DecodeTime {
		t.Errorf("the first steps loaded %v of %v", first, s.Stats().PrefillTime+s.Stats().DecodeTime)
	}
}
