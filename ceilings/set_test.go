package ceilings

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"gpt2scope/cpu"
	"gpt2scope/cuda"
	"gpt2scope/gpt2"
	"gpt2scope/traces"
)

func ms(x ...float64) (out []time.Duration) {
	for _, v := range x {
		out = append(out, time.Duration(v*1e6))
	}
	return out
}

// a set of a made-up CPU: 100 GB/s up to 1000 bytes, 10 up to 2000, 1 beyond; 1 GFLOP/s.
func made(key string) Set {
	return Set{Key: key, Device: "made up", Time: time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC), Values: []Value{
		{Name: "read", Unit: "GB/s", Value: 100, P10: 90, P90: 101, Size: 1000, Where: "L2 cache"},
		{Name: "read", Unit: "GB/s", Value: 10, P10: 9, P90: 11, Size: 2000},
		{Name: "copy", Unit: "GB/s", Value: 0.5, P10: 0.5, P90: 0.5},
		{Name: "read", Unit: "GB/s", Value: 1, P10: 1, P90: 1, Where: "memory"},
		{Name: "f32", Unit: "TFLOP/s", Value: 1e-3, P10: 1e-3, P90: 1e-3},
		{Name: "barrier", Unit: "us", Value: 2, P10: 1, P90: 3},
	}}
}

func TestBandwidth(t *testing.T) {
	for data, want := range map[int64]float64{0: 100e9, 1000: 100e9, 1001: 10e9, 2000: 10e9, 2001: 1e9, math.MaxInt64: 1e9} {
		if got := made("x").Bandwidth(data); got != want {
			t.Errorf("%d bytes at %g bytes/s, want %g", data, got, want)
		}
	}
	if got := (Set{}).Bandwidth(5); got != 0 {
		t.Errorf("nothing was measured, and the bandwidth is %g", got)
	}
}

// Floors of steps by hand. Weights and cache are read at the rate for the whole pass,
// activations at the rate for as many bytes as they are.
func TestStepFloor(t *testing.T) {
	s, sizes := made("x"), gpt2.Sizes{Weight: 2, Activation: 4, KV: 4}
	for _, c := range []struct {
		cost gpt2.Cost
		data int64
		want time.Duration
	}{
		{gpt2.Cost{Weights: 5000, FLOPs: 1}, 10000, 10 * time.Microsecond},
		{gpt2.Cost{Weights: 500, FLOPs: 1}, 2000, 100},
		{gpt2.Cost{Weights: 500, KV: 250, Activations: 250, FLOPs: 1}, 10000, 2*time.Microsecond + 10},
		{gpt2.Cost{Weights: 500, FLOPs: 9000}, 10000, 9 * time.Microsecond},
	} {
		if got := s.stepFloor(c.cost, sizes, c.data, 1e9); (got.Time - c.want).Abs() > 2 {
			t.Errorf("%+v of %d bytes: %v, want %v", c.cost, c.data, got, c.want)
		}
	}
	m, err := gpt2.Random("random:L=1,C=8,NH=1,V=100,T=16")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	p := gpt2.Forward(m.Config, []int{0}, gpt2.Phase{Batch: 1, Tokens: 1, Logits: gpt2.LogitsLast})
	floor := s.PlanFloor(p, 3, sizes)
	if cost := p.Cost(3); floor < time.Duration(cost.Weights*2) || floor > time.Duration(cost.Bytes(sizes)+cost.FLOPs) {
		t.Errorf("at 1 byte/ns, %+v takes %v", cost, floor)
	}
	if d := s.WithBarriers(p, floor) - floor; d != time.Duration(len(p.Steps)-1)*2*time.Microsecond {
		t.Errorf("%d steps need %v of barriers", len(p.Steps), d)
	}
}

func TestRecord(t *testing.T) {
	want := []traces.Ceiling{{Device: -1, Name: "read", Unit: "GB/s", Value: 100, Size: 1000}, {Device: -1, Name: "read", Unit: "GB/s", Value: 10, Size: 2000},
		{Device: -1, Name: "copy", Unit: "GB/s", Value: 0.5}, {Device: -1, Name: "read", Unit: "GB/s", Value: 1}, {Device: -1, Name: "f32", Unit: "TFLOP/s", Value: 1e-3}}
	if got := made("x").Record(-1); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant\n%+v", got, want)
	}
	if c := made("x").GPU(); c != (Ceilings{Copy: 0.5, Read: 1, L2Read: 10, F32: 1e-3, Barrier: 2}) {
		t.Errorf("as a GPU's: %+v", c)
	}
}

// What the second half adds counts where it is believable.
func TestL2Rate(t *testing.T) {
	for _, c := range []struct {
		half, whole []time.Duration
		want        float64
	}{
		{ms(3, 3, 3), ms(4.5, 4.5, 4.5), 2 / 3.},  // 1e6 bytes more in 1.5 ms; all in 4.5 ms would be 0.44 GB/s
		{ms(3, 3, 3), ms(3.1, 3.1, 3.1), 2 / 3.1}, // 10 GB/s is not believed
		{ms(3, 3, 3), ms(2, 2, 2), 1},             // faster than the half: noise; all in 2 ms
		{ms(2, 2, 2), ms(4, 4, 4), 0.5},           // no start to subtract
	} {
		v := l2Rate(1e6, c.half, 2e6, c.whole)
		if math.Abs(v.Value-c.want) > 1e-6 || v.P10 > v.P90 || v.P90 < v.Value {
			t.Errorf("%v and %v: %+v, want %g", c.half, c.whole, v, c.want)
		}
	}
}

func TestCache(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	path, err := CachePath()
	if err != nil {
		t.Fatal(err)
	}
	load := func(key string) (Set, bool) {
		t.Helper()
		s, ok, err := Load(key)
		if err != nil {
			t.Fatal(err)
		}
		return s, ok
	}
	if _, ok := load("a"); ok {
		t.Error("found where nothing is stored")
	}
	a, b := made("a"), made("b")
	b.Values = b.Values[:2]
	for _, s := range []Set{a, b, a} {
		if err := Store(context.Background(), s); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []Set{a, b} {
		if got, ok := load(want.Key); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v; want %+v", got, ok, want)
		}
	}
	if _, ok := load("c"); ok {
		t.Error("found what was not stored")
	}
	disturbed, wrong := made("d"), made("e")
	disturbed.Disturbed = "somebody else"
	wrong.Values[0].Value = math.NaN()
	for _, s := range []Set{disturbed, wrong, {Key: "f"}, {}} {
		if err := Store(context.Background(), s); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("stored %+v: %v", s, err)
		}
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// Damaged, old, too large: a sentence that names the file; stored anew, it is good again.
	text := string(good)
	for _, damaged := range []string{"", "{", text[:len(text)/2], `{"version": 0, "sets": []}`, `{"version": 1, "sets": []}`,
		fmt.Sprintf(`{"version": %d, "sets": []}`, cacheVersion+1), "[]", "null",
		strings.Replace(text, "100", "-100", 1), strings.Replace(text, "100", "1e300", 1), strings.Replace(text, `"key": "a"`, `"key": ""`, 1),
		strings.Replace(text, `"size": 1000`, `"size": -1`, 1), strings.Replace(text, "2026", "2226", 1), strings.Replace(text, `"unit": "us"`, `"unit": "m"`, 1),
		text + strings.Repeat(" ", maxCacheBytes)} {
		if err := os.WriteFile(path, []byte(damaged), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, ok, err := Load("a"); ok || err == nil || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "\n") {
			t.Errorf("of %.80q: %v, %v", damaged, ok, err)
		}
		if err := Store(context.Background(), a); err != nil {
			t.Fatal(err)
		}
		if _, ok := load("a"); !ok {
			t.Errorf("not found after %.80q was replaced", damaged)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := Load("a"); ok || err == nil {
		t.Error("a folder was read")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	many := cacheFile{Version: cacheVersion}
	for i := range maxSets + 50 { // the file does not grow without end
		many.Sets = append(many.Sets, made(fmt.Sprint(i)))
	}
	data, err := json.Marshal(many)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := Store(context.Background(), a); err != nil {
		t.Fatal(err)
	}
	if sets, err := readCache(path); err != nil || len(sets) != maxSets || sets[0].Key != "a" {
		t.Errorf("%d sets, %v", len(sets), err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); len(left) != 1 {
		t.Errorf("left behind: %q", left)
	}
}

// stub builds the CUDA library without CUDA.
func stub(t *testing.T) string {
	t.Helper()
	source := "../cuda/testdata/stub.c"
	if _, err := os.Stat(source); err != nil {
		t.Skipf("the stub library needs its source: %v", err)
	}
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skipf("the stub library needs a C compiler: %v", err)
	}
	library, blas := filepath.Join(t.TempDir(), "libgpt2scope_cuda.so"), filepath.Join(t.TempDir(), "stub-blas.so")
	args := []string{"-std=gnu11", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-I", "../cuda", source, "-o", library, "-lpthread", "-lm"}
	if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
		t.Fatalf("building the stub library: %v\n%s", err, out)
	}
	if err := os.WriteFile(blas, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GPT2SCOPE_CUBLASLT", blas)
	return library
}

// The CPU, measured as far as small data needs.
func TestMeasureCPU(t *testing.T) {
	b, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	s, err := MeasureCPU(context.Background(), b, 100_000)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.check(); err != nil || s.Key != KeyCPU(b) || !strings.Contains(s.Key, "1 thread, kernels "+b.ISA()) || s.Bandwidth(100_000) < 1e8 || s.find("f32") <= 0 || s.find("barrier") <= 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

// A GPU without one: each event is 1.5 ms after another, so every value follows.
func TestMeasureGPU(t *testing.T) {
	lib, err := cuda.OpenFile(stub(t))
	if err != nil {
		t.Fatal(err)
	}
	dev, err := lib.Device(0)
	if err != nil {
		t.Fatal(err)
	}
	s, err := MeasureGPU(context.Background(), lib, dev)
	if err != nil {
		t.Fatal(err)
	}
	key, err := KeyGPU(lib, dev)
	if err != nil || s.Key != key || !strings.Contains(key, "Stub 0, compute capability 9.0") {
		t.Errorf("key %q, want %q, %v", s.Key, key, err)
	}
	free, _, _ := dev.Memory()
	copied := float64(free/8) * 2 / 1.5e-3 / 1e9
	l2 := float64(25<<20) / (1.5e-3 / 200) / 1e9
	if c := s.GPU(); math.Abs(c.Copy/copied-1) > 1e-3 || math.Abs(c.Read/(copied/2)-1) > 1e-3 || math.Abs(c.L2Read/l2-1) > 1e-3 || math.Abs(c.Launch-7.5) > 1e-3 ||
		math.Abs(c.BF16/(2*8192.*8192*8192/1.5e-3/1e12)-1) > 1e-3 || c.Barrier != 0 {
		t.Errorf("%+v; copy should be %g, L2 %g", c, copied, l2)
	}
	for _, v := range s.Values {
		if v.Where == "L2 cache" && v.Size != 50<<20 {
			t.Errorf("%+v", v)
		}
	}
}
