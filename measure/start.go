package measure

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"gpt2scope/ceilings"
	"gpt2scope/cuda/nvml"
)

// What a process that has just begun can measure of its start.
const (
	StartCUDA = "cuda"
	StartNVML = "nvml"
)

// startProcesses is how many processes measure a start, after one that reads files which the next find in memory.
const startProcesses = 5

// startWords say how each cost was measured.
var startWords = map[string]string{
	ceilings.CUDADriver:  "library opened and device found by a process that has just begun",
	ceilings.CUBLASLt:    "opened after that",
	ceilings.CUDAContext: "the first stream and the first memory after that",
	ceilings.NVML:        "opened by a process that has just begun",
}

// StartCosts measures what the first use of a GPU and of NVML costs a process. child runs a process that does what it
// is told, StartCUDA or StartNVML, and returns its times in us, by their names in package ceilings. What could not be
// measured is left out; err says why.
func StartCosts(ctx context.Context, child func(ctx context.Context, what string) (map[string]float64, error)) (
	values []ceilings.Value, err error) {
	for _, what := range []string{StartCUDA, StartNVML} {
		times := map[string][]float64{}
		var failed error
		for i := 0; i <= startProcesses && failed == nil; i++ {
			var us map[string]float64
			us, failed = child(ctx, what)
			for name, v := range us {
				if startWords[name] == "" || !(v > 0) {
					failed = fmt.Errorf("a process says that %q took %g us", name, v)
				}
				if i > 0 {
					times[name] = append(times[name], v)
				}
			}
		}
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("the start of %s: %w", what, failed))
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(times)) {
			values = append(values, ceilings.Cost(name, startWords[name], times[name]))
		}
	}
	return values, err
}

// StartOfNVML opens NVML as a process does that has just begun, and returns what that took, as child of StartCosts
// does.
func StartOfNVML() (map[string]float64, error) {
	began := time.Now()
	n, err := nvml.Open()
	if err != nil {
		return nil, err
	}
	took := time.Since(began)
	n.Close()
	return map[string]float64{ceilings.NVML: float64(max(1, took)) / 1e3}, nil
}
