// Package ceilings holds what a device can do at most, and derives from it the least time that work takes there.
//
// A [Set] is what was measured of one device: bandwidths of memory and caches, arithmetic rates, latencies. Each device
// measures itself, in its own package; [Store] keeps the set in the user's cache folder, and [Load] finds it by a key
// that names the device, the versions of what ran on it and, for a CPU, threads and kernels.
//
// A floor is the least time of a step of a pass:
//
//	max(bytes / bandwidth, FLOPs / arithmetic rate)
//
// [Set.Floor] is its only definition; benchmarks, recordings, advice and reports all call it.
package ceilings

import (
	"math"
	"time"
)

// The units of values.
const (
	GBs    = "GB/s"    // 1e9 bytes
	TFLOPs = "TFLOP/s" // 1e12 operations
	Micro  = "us"
)

// The types that products multiply in, which name the arithmetic rates.
const (
	F32  = "f32"
	BF16 = "bf16"
	Int8 = "int8"
)

// The names of bandwidths. A copy counts the bytes that it reads and those that it writes.
const (
	Read = "read"
	Copy = "copy"
)

// Value is one thing that was measured.
type Value struct {
	Name  string  `json:"name"` // Read, Copy; for products F32, BF16 or Int8; "launch", "barrier", "hop"
	Unit  string  `json:"unit"` // GBs, TFLOPs or Micro
	Value float64 `json:"value"`
	Size  int64   `json:"size,omitempty"`  // the most bytes that a bandwidth holds for, 0 for any; those an SM reads in a hop
	Where string  `json:"where,omitempty"` // of the data: "memory", "L2 cache"
	How   string  `json:"how,omitempty"`   // what gave the value

	// Rounds are the medians of the rounds of a measurement, in order: see [Measure].
	Rounds []float64 `json:"rounds,omitempty"`
}

// Set is what was measured of a device.
type Set struct {
	Key    string    `json:"key"`    // names device and versions
	Device string    `json:"device"` // its name
	Time   time.Time `json:"time"`   // of the measurement, UTC
	Values []Value   `json:"values"`

	// Uncertainty is how much higher, as a share of a value, the true rates may be: 0.05 if
	// nothing disturbed the measurement. [Store] keeps the surest set of a key.
	Uncertainty float64 `json:"uncertainty"`

	// Disturbed says what disturbed the measurement, "" if nothing did.
	Disturbed string `json:"disturbed,omitempty"`
}

// Bandwidth returns the highest bandwidth, in bytes per second, of reading data of so many bytes over and over: that of
// memory or of any cache that holds the data. If no reads were measured it is that of copies; 0 if neither was.
func (s Set) Bandwidth(bytes int64) float64 {
	best := map[string]float64{}
	for _, v := range s.Values {
		if v.Unit == GBs && (v.Size == 0 || bytes <= v.Size) {
			best[v.Name] = max(best[v.Name], positive(v.Value))
		}
	}
	if read := best[Read]; read > 0 {
		return read * 1e9
	}
	return best[Copy] * 1e9
}

// Rate returns operations per second of products in a type: the float32 rate, or that
// of the type if it is higher. It is 0 if neither was measured.
func (s Set) Rate(multiply string) float64 {
	best := 0.0
	for _, v := range s.Values {
		if v.Unit == TFLOPs && (v.Name == F32 || v.Name == multiply) {
			best = max(best, positive(v.Value))
		}
	}
	return best * 1e12
}

// positive returns v, or 0 if v is negative or not a number: values may come from a damaged file.
func positive(v float64) float64 {
	if v > 0 {
		return v
	}
	return 0
}

// Work is what a step needs at least.
type Work struct {
	FLOPs int64
	Type  string // that it multiplies in, F32, BF16 or Int8: names the arithmetic rate

	// Bytes are those of weights and KV cache. They are read from where the data of the
	// whole pass fits, since pass follows pass.
	Bytes int64

	// Activations are bytes that the step before has just written. They are read from
	// where those of the step alone fit.
	Activations int64
}

// Floor is the least time of work on a device.
type Floor struct {
	Time  float64 // ns
	Bound string  // BoundBytes or BoundFLOPs: what takes that time
}

// What bounds a floor.
const (
	BoundBytes = "bytes"
	BoundFLOPs = "FLOPs"
)

// Floor returns the least time of a step in a pass that moves so many bytes in all
// ([Traffic]). ok is false if a ceiling that it needs was not measured.
func (s Set) Floor(w Work, pass int64) (f Floor, ok bool) {
	ok = true
	time := func(amount int64, perSecond float64) float64 {
		if amount == 0 {
			return 0
		}
		ok = ok && amount > 0 && perSecond > 0
		return float64(amount) / perSecond * 1e9
	}
	bytes := time(w.Bytes, s.Bandwidth(pass)) + time(w.Activations, s.Bandwidth(w.Activations))
	flops := time(w.FLOPs, s.Rate(w.Type))
	f = Floor{bytes, BoundBytes}
	if flops > bytes {
		f = Floor{flops, BoundFLOPs}
	}
	if !ok || f.Time > math.MaxInt64 { // more than a time.Duration holds: the ceiling is damaged
		return Floor{}, false
	}
	return f, true
}

// Roofline returns a floor in percent of the time that the work took: 100 is as fast as the
// device can be. ok is false if either is not known, or if the work was faster than its
// floor: then a ceiling is too low, and the figure would say nothing.
func Roofline(floor, time float64) (percent float64, ok bool) {
	if !(floor > 0 && time >= floor) {
		return 0, false
	}
	return 100 * floor / time, true
}

// Traffic returns the bytes that the steps of a pass move in all. A sum beyond an
// int64 counts as more than any cache holds.
func Traffic(pass []Work) int64 {
	sum := int64(0)
	for _, w := range pass {
		for _, n := range []int64{w.Bytes, w.Activations} {
			if sum += max(0, n); sum < 0 {
				return math.MaxInt64
			}
		}
	}
	return sum
}

// Floors returns the floor of each step of a pass. ok is false if a ceiling that one of them needs was not measured.
func (s Set) Floors(pass []Work) (floors []Floor, ok bool) {
	floors, ok = make([]Floor, len(pass)), true
	traffic := Traffic(pass)
	for i, w := range pass {
		f, known := s.Floor(w, traffic)
		floors[i], ok = f, ok && known
	}
	return floors, ok
}

// PassFloor returns the least time of a pass: the sum over its steps. It is 0 if a
// ceiling that a step needs was not measured.
func (s Set) PassFloor(pass []Work) time.Duration {
	floors, ok := s.Floors(pass)
	if !ok {
		return 0
	}
	sum := 0.0
	for _, f := range floors {
		sum += f.Time
	}
	return time.Duration(sum)
}
