// Package ceilingstest gives tests ceilings of this machine without measuring them.
package ceilingstest

import (
	"context"
	"os"
	"testing"
	"time"

	"gpt2scope/ceilings"
	"gpt2scope/cpu"
)

// Set is a made-up set of a device that is faster than any there is, so that no run is faster than its floor.
func Set(key string) ceilings.Set {
	s := ceilings.Set{Key: key, Device: key, Time: time.Now().UTC().Truncate(time.Second), Uncertainty: 0.05,
		Values: []ceilings.Value{
			{Name: ceilings.Read, Unit: ceilings.GBs, Value: 100_000, Size: 4 << 20, Where: "L2 cache"},
			{Name: ceilings.Read, Unit: ceilings.GBs, Value: 20_000, Where: "memory"},
			{Name: ceilings.Copy, Unit: ceilings.GBs, Value: 20_000, Where: "memory"},
			{Name: ceilings.F32, Unit: ceilings.TFLOPs, Value: 1000},
			{Name: ceilings.BF16, Unit: ceilings.TFLOPs, Value: 4000},
			{Name: "barrier", Unit: ceilings.Micro, Value: 0.1},
		}}
	for i := range s.Values {
		v := &s.Values[i]
		v.How, v.Rounds = "made up", []float64{v.Value, v.Value}
	}
	return s
}

// Use stores [Set] for this machine's CPU, with up to 16 threads and any kernels, in a cache folder of the test.
func Use(t testing.TB) {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	if err := store(); err != nil {
		t.Fatal(err)
	}
}

// Main does what [Use] does for all tests of a package, and runs them. The cache folder is inherited by processes that
// a test starts.
func Main(m *testing.M) (status int) {
	dir, err := os.MkdirTemp("", "gpt2scope-cache-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	os.Setenv("XDG_CACHE_HOME", dir)
	if err := store(); err != nil {
		panic(err)
	}
	return m.Run()
}

func store() error {
	var sets []ceilings.Set
	for _, isa := range cpu.ISAs() {
		for threads := 1; threads <= 16; threads++ {
			sets = append(sets, Set(cpu.CeilingsKey(threads, isa)))
		}
	}
	return ceilings.Store(context.Background(), sets...)
}
