package main

import (
	"context"
	"time"

	"gpt2scope/ceilings"
	"gpt2scope/cpu"
)

// madeUp is a set of a device that is faster than any there is, so that no run is faster than its floor.
func madeUp(key string) ceilings.Set {
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

// storeMadeUp stores such a set for this machine's CPU, with up to 16 threads and any kernels, in the cache folder.
func storeMadeUp() error {
	var sets []ceilings.Set
	for _, isa := range cpu.ISAs() {
		for threads := 1; threads <= 16; threads++ {
			sets = append(sets, madeUp(cpu.CeilingsKey(threads, isa)))
		}
	}
	return ceilings.Store(context.Background(), sets...)
}
