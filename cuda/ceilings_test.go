package cuda_test

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpt2scope/cuda"
)

// A stub GPU: each event is 1.5 ms after another, so every value follows.
func TestMeasureCeilings(t *testing.T) {
	lib, dev, _ := openStub(t)
	blas := filepath.Join(t.TempDir(), "stub-blas.so")
	if err := os.WriteFile(blas, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GPT2SCOPE_CUBLASLT", blas)
	s, err := dev.MeasureCeilings(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	key, err := dev.CeilingsKey()
	if err != nil || s.Key != key || !strings.Contains(key, "Stub 0, compute capability 9.0") || lib.BLASVersion() == 0 {
		t.Errorf("key %q, want %q, %v", s.Key, key, err)
	}
	free, _, _ := dev.Memory()
	copied := float64(free/8) * 2 / 1.5e-3 / 1e9
	// The stub's device reads up to 4 turns for each SM, and all of them in 1.5 ms.
	turn := float64(4 * dev.Info().Processors * cuda.CacheTurn)
	if turn > float64(dev.Info().L2Bytes)/4 {
		t.Fatalf("%g bytes do not fit a quarter of the cache", turn)
	}
	wantL2 := math.Floor(4<<30/turn) * turn / 1.5e-3 / 1e9
	want := map[string]float64{"copy memory": copied, "read memory": copied / 2, "read L2 cache": wantL2,
		"bf16 ": 2 * 8192. * 8192 * 8192 / 1.5e-3 / 1e12, "f32 ": 2 * 4096. * 4096 * 4096 / 1.5e-3 / 1e12, "launch ": 7.5, "barrier ": 0}
	for _, v := range s.Values {
		name := v.Name + " " + v.Where
		w, ok := want[name]
		if !ok || math.Abs(v.Value-w) > 1e-3*w || v.P10 > v.P90 || v.Where == "L2 cache" != (v.Size == 50<<20) {
			t.Errorf("%+v; the value should be %g", v, w)
		}
		delete(want, name)
	}
	if len(want) != 0 {
		t.Errorf("not measured: %v", want)
	}
}

func TestEncode(t *testing.T) {
	x := []float32{1, -0.5, 1 + 1.0/256, 1 + 3.0/256, 3.14159265}
	for i, want := range []float32{1, -0.5, 1, 1 + 1.0/64, 3.140625} { // ties go to even
		if got := cuda.Decode(cuda.Encode(x, cuda.BF16), cuda.BF16)[i]; got != want {
			t.Errorf("%g becomes %g as bfloat16, not %g", x[i], got, want)
		}
		if got := cuda.Decode(cuda.Encode(x, cuda.F32), cuda.F32)[i]; math.Float32bits(got) != math.Float32bits(x[i]) {
			t.Errorf("%g becomes %g as float32", x[i], got)
		}
	}
}
