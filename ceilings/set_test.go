package ceilings

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"gpt2scope/internal/require"
)

var must = require.NoError

// a set of a made-up CPU: 100 GB/s up to 1000 bytes, 10 up to 2000, 1 beyond; 1 GFLOP/s, 4 in bfloat16.
func made(key string) Set {
	return Set{Key: key, Device: "made up", Time: time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC), Values: []Value{
		{Name: "read", Unit: "GB/s", Value: 100, Size: 1000, Where: "L2 cache"},
		{Name: "read", Unit: "GB/s", Value: 10, Size: 2000},
		{Name: "copy", Unit: "GB/s", Value: 0.5},
		{Name: "read", Unit: "GB/s", Value: 1, Where: "memory"},
		{Name: "f32", Unit: "TFLOP/s", Value: 1e-3},
		{Name: "bf16", Unit: "TFLOP/s", Value: 4e-3},
		{Name: "barrier", Unit: "us", Value: 2},
	}}
}

func TestBandwidth(t *testing.T) {
	for data, want := range map[int64]float64{0: 100e9, 1000: 100e9, 1001: 10e9, 2000: 10e9, 2001: 1e9,
		math.MaxInt64: 1e9} {
		if got := made("x").Bandwidth(data); got != want {
			t.Errorf("%d bytes at %g bytes/s, want %g", data, got, want)
		}
	}
	slow := Set{Values: []Value{{Name: Read, Unit: GBs, Value: 1, Size: 1000}, {Name: Read, Unit: GBs, Value: 3},
		{Name: Read, Unit: GBs, Value: 2, Size: 2000}}}
	if got := slow.Bandwidth(500); got != 3e9 {
		t.Errorf("the highest bandwidth that holds is 3 GB/s, not %g", got)
	}
	// A copy may move more bytes a second than a read, since it goes both ways at once.
	slow.Values = append(slow.Values, Value{Name: Copy, Unit: GBs, Value: 5}, Value{Name: "unknown", Unit: GBs, Value: 6})
	if got := slow.Bandwidth(500); got != 3e9 {
		t.Errorf("data is read at 3 GB/s, not %g", got)
	}
	if got := (Set{Values: slow.Values[3:]}).Bandwidth(500); got != 5e9 {
		t.Errorf("without reads the bandwidth is that of copies, 5 GB/s, not %g", got)
	}
	if got := (Set{}).Bandwidth(5); got != 0 {
		t.Errorf("nothing was measured, and the bandwidth is %g", got)
	}
}

// Floors worked out by hand. Weights and cache are read at the bandwidth for the data of
// the pass, activations at that for as many bytes as they are.
func TestFloor(t *testing.T) {
	s := made("x")
	for _, c := range []struct {
		work Work
		pass int64
		want Floor
	}{
		{Work{Bytes: 10_000, FLOPs: 1}, 20_000, Floor{10_000, BoundBytes}},
		{Work{Bytes: 1000, FLOPs: 1}, 2000, Floor{100, BoundBytes}},
		{Work{Bytes: 2000, Activations: 1000, FLOPs: 1}, 20_000, Floor{2010, BoundBytes}},
		{Work{Bytes: 1000, FLOPs: 9000, Type: F32}, 20_000, Floor{9000, BoundFLOPs}},
		{Work{Bytes: 1000, FLOPs: 9000, Type: BF16}, 20_000, Floor{2250, BoundFLOPs}},
		{Work{Bytes: 1000, FLOPs: 9000, Type: "q4"}, 20_000, Floor{9000, BoundFLOPs}}, // not measured: float32 is what is known
		{Work{}, 20_000, Floor{0, BoundBytes}},
	} {
		got, ok := s.Floor(c.work, c.pass)
		if !ok || math.Abs(got.Time-c.want.Time) > 1e-9*c.want.Time || got.Bound != c.want.Bound {
			t.Errorf("%+v in a pass of %d bytes: %+v, %v; want %+v", c.work, c.pass, got, ok, c.want)
		}
	}
	slow := made("y") // a type that is slower than float32 takes no longer than float32
	slow.Values = append(slow.Values, Value{Name: "slow", Unit: TFLOPs, Value: 1e-9})
	if f, ok := slow.Floor(Work{FLOPs: 1000, Type: "slow"}, 1); !ok || f.Time != 1000 {
		t.Errorf("%+v, %v", f, ok)
	}
	damaged := Set{Values: []Value{{Name: "read", Unit: GBs, Value: math.NaN()}, {Name: "read", Unit: GBs, Value: -1},
		{Name: F32, Unit: TFLOPs, Value: 1e-300}}}
	for _, c := range []struct {
		set  Set
		work Work
	}{{Set{}, Work{Bytes: 1}}, {Set{}, Work{FLOPs: 1}}, {Set{}, Work{Activations: 1}}, {s, Work{Bytes: -1}}, {s,
		Work{FLOPs: -1}}, {damaged, Work{Bytes: 1}}, {damaged, Work{FLOPs: 1}}} {
		if f, ok := c.set.Floor(c.work, 1); ok || f != (Floor{}) {
			t.Errorf("%+v on %+v: %+v, %v", c.work, c.set.Values, f, ok)
		}
	}
}

func TestRoofline(t *testing.T) {
	for _, c := range []struct {
		floor, time, want float64
		ok                bool
	}{{1, 4, 25, true}, {3, 3, 100, true}, {3.03, 3, 0, false}, {0, 3, 0, false}, {-1, 3, 0, false}, {math.NaN(), 3, 0,
		false}, {3, math.NaN(), 0, false}, {0, 0, 0, false}} {
		if got, ok := Roofline(c.floor, c.time); got != c.want || ok != c.ok {
			t.Errorf("a floor of %g and a time of %g: %g, %v", c.floor, c.time, got, ok)
		}
	}
}

// A pass is the sum of its steps, each within the traffic of all.
func TestPassFloor(t *testing.T) {
	s := made("x")
	pass := []Work{{Bytes: 1500}, {Bytes: 400, Activations: 101}, {FLOPs: 500, Type: F32}}
	if n := Traffic(pass); n != 2001 {
		t.Errorf("traffic of %d bytes", n)
	}
	floors, ok := s.Floors(pass)
	if !ok || len(floors) != 3 || floors[0].Time != 1500 || math.Abs(floors[1].Time-401.01) > 1e-9 ||
		floors[2].Time != 500 {
		t.Errorf("%+v, %v", floors, ok)
	}
	if d := s.PassFloor(pass); d != 2401 {
		t.Errorf("the pass takes %v at least", d)
	}
	if d := s.PassFloor(append(pass, Work{Bytes: -1})); d != 0 {
		t.Errorf("with a step of unknown work: %v", d)
	}
	if n := Traffic([]Work{{Bytes: math.MaxInt64}, {Bytes: 5}}); n != math.MaxInt64 {
		t.Errorf("a sum beyond an int64 is %d", n)
	}
}

func TestCache(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	path := require.Value(CachePath())(t)
	load := func(key string) (Set, bool) {
		t.Helper()
		s, ok, err := Load(key)
		must(t, err)
		return s, ok
	}
	if _, ok := load("a"); ok {
		t.Error("found where nothing is stored")
	}
	a, b := made("a"), made("b")
	b.Values = b.Values[:2]
	for _, s := range []Set{a, b, a} {
		must(t, Store(context.Background(), s))
	}
	for _, want := range []Set{a, b} {
		if got, ok := load(want.Key); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v; want %+v", got, ok, want)
		}
	}
	if _, ok := load("c"); ok {
		t.Error("found what was not stored")
	}
	wrong, unsure := made("e"), made("e")
	wrong.Values[0].Value, unsure.Uncertainty = math.NaN(), 1
	for _, s := range []Set{wrong, unsure, {Key: "f"}, {}} {
		if err := Store(context.Background(), s); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("stored %+v: %v", s, err)
		}
	}
	// A disturbed set is kept until a surer one comes; a less sure one only raises what is stored.
	unsure = made("d")
	unsure.Uncertainty, unsure.Disturbed = 0.4, "somebody else"
	unsure.Values[3].Value = 0.5
	sure, higher := made("d"), made("d")
	sure.Uncertainty = 0.05
	higher.Uncertainty, higher.Values[3].Value, higher.Values[1].Value = 0.3, 0.1, 20
	for i, c := range []struct {
		stored     Set
		memory, l2 float64
	}{{unsure, 0.5, 10}, {sure, 1, 10}, {higher, 1, 20}} {
		must(t, Store(context.Background(), c.stored))
		if got, ok := load("d"); !ok || got.Values[3].Value != c.memory || got.Values[1].Value != c.l2 ||
			got.Uncertainty != []float64{0.4, 0.05, 0.05}[i] {
			t.Errorf("after set %d the file has %+v", i, got)
		}
	}
	must(t, os.Remove(path))
	must(t, Store(context.Background(), b, a))
	good := require.Value(os.ReadFile(path))(t)
	// Damaged, old, too large: a sentence that names the file; stored anew, it is good again.
	text := string(good)
	for _, damaged := range []string{"", "{", text[:len(text)/2], `{"version": 0, "sets": []}`,
		`{"version": 1, "sets": []}`,
		fmt.Sprintf(`{"version": %d, "sets": []}`, cacheVersion+1), "[]", "null",
		strings.Replace(text, "100", "-100", 1), strings.Replace(text, "100", "1e300", 1), strings.Replace(text, `"key": "a"`,
			`"key": ""`, 1),
		strings.Replace(text, `"size": 1000`, `"size": -1`, 1), strings.Replace(text, "2026", "2226",
			1), strings.Replace(text, `"unit": "us"`, `"unit": "m"`, 1),
		text + strings.Repeat(" ", maxCacheBytes)} {
		must(t, os.WriteFile(path, []byte(damaged), 0o666))
		if _, ok, err := Load("a"); ok || err == nil || !strings.Contains(err.Error(), path) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("of %.80q: %v, %v", damaged, ok, err)
		}
		must(t, Store(context.Background(), a))
		if _, ok := load("a"); !ok {
			t.Errorf("not found after %.80q was replaced", damaged)
		}
	}
	must(t, os.Remove(path))
	must(t, syscall.Mkfifo(path, 0o666))
	if _, ok, err := Load("a"); ok || err == nil || !strings.Contains(err.Error(), path+" is not a regular file") {
		t.Errorf("of a pipe: %v, %v", ok, err)
	}
	must(t, os.Remove(path))
	many := cacheFile{Version: cacheVersion}
	for i := range maxSets + 50 { // the file does not grow without end
		many.Sets = append(many.Sets, made(fmt.Sprint(i)))
	}
	data := require.Value(json.Marshal(many))(t)
	must(t, os.WriteFile(path, data, 0o666))
	must(t, Store(context.Background(), a))
	if sets, _, err := readCache(); err != nil || len(sets) != maxSets || sets[0].Key != "a" {
		t.Errorf("%d sets, %v", len(sets), err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); len(left) != 1 {
		t.Errorf("left behind: %q", left)
	}
}
