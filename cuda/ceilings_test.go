package cuda_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"gpt2scope/ceilings"
	"gpt2scope/cuda"
	"gpt2scope/internal/require"
	"gpt2scope/internal/stub"
)

// smallMemory is what a stub GPU has free, so that copies of a part of it take little time.
const smallMemory = 64 << 20

// A stub GPU: each event is 1.5 ms after another, so every value follows.
func TestMeasureCeilings(t *testing.T) {
	lib, dev, control := openStub(t)
	stub.BLAS(t)
	control.Memory(smallMemory)
	s, err := dev.MeasureCeilings(context.Background())
	must(t, err)
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
		// Matrices are small where little memory is free.
		"bf16 ": 2 * 1024. * 1024 * 1024 / 1.5e-3 / 1e12, "f32 ": 2 * 1024. * 1024 * 1024 / 1.5e-3 / 1e12, "launch ": 7.5,
		"hop every SM reads 12 bytes x 2 of every other, in one kernel": 0, "hop every SM reads 12 bytes x 4 of every other, in one kernel": 0}
	sizes := map[string]int64{"read L2 cache": 50 << 20, // of hops: 12 bytes x packets x 4 SMs
		"hop every SM reads 12 bytes x 2 of every other, in one kernel": 96, "hop every SM reads 12 bytes x 4 of every other, in one kernel": 192}
	for _, v := range s.Values {
		name := v.Name + " " + v.Where
		if v.Name == "hop" {
			name += v.How
		}
		w, ok := want[name]
		if !ok || math.Abs(v.Value-w) > 1e-3*w || v.Size != sizes[name] {
			t.Errorf("%+v; the value should be %g", v, w)
		}
		delete(want, name)
	}
	if len(want) != 0 {
		t.Errorf("not measured: %v", want)
	}
	control.Reset()
	control.Memory(smallMemory)
	control.Fail("lost", 40)
	if _, err := dev.MeasureCeilings(context.Background()); err == nil {
		t.Error("the device was lost among the ceilings, and there is no error")
	}
	control.Reset()
}

// A block that waits too long for a unit is an error. A device without the kernel has the other ceilings.
func TestMeasureHops(t *testing.T) {
	stub.BLAS(t)
	_, dev, control := openStub(t)
	for _, launch := range []int{40} {
		control.Memory(smallMemory)
		control.Fail("hop", launch)
		if _, err := dev.MeasureCeilings(context.Background()); err == nil || !strings.Contains(err.Error(), "a block waited more than a second for another one") {
			t.Errorf("launch %d is late: %v", launch, err)
		}
	}

	_, old, control := openStub(t, "STUB_MAJOR=8")
	control.Memory(smallMemory)
	s, err := old.MeasureCeilings(context.Background())
	if err != nil || !slices.ContainsFunc(s.Values, func(v ceilings.Value) bool { return v.Name == "launch" }) || slices.ContainsFunc(s.Values, func(v ceilings.Value) bool { return v.Name == "hop" }) {
		t.Errorf("%+v, %v", s, err)
	}
}

// Hops checks what the kernel assumes, before it launches.
func TestHopsChecked(t *testing.T) {
	_, dev, control := openStub(t)
	s := stream(t, dev)
	work := require.Value(dev.Alloc(cuda.HopBytes(2, dev.Info().Processors)))(t)
	defer work.Free()
	for _, c := range [][2]int{{0, 1}, {3, 1}, {1 << 30, 1}, {2, 0}, {2, -1}} {
		var refused *cuda.ShapeError
		if err := s.Hops(work, c[0], c[1]); !errors.As(err, &refused) || refused.Op != "Hops" {
			t.Errorf("%d packets, %d rounds: %v", c[0], c[1], err)
		}
	}
	if calls := control.Calls(); slices.Contains(calls, "gs_hops") {
		t.Errorf("launched: %v", calls)
	}
	if err := s.Hops(work, 2, 1); err != nil {
		t.Error(err)
	}
}
