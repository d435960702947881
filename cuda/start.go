package cuda

import (
	"errors"
	"time"

	"gpt2scope/ceilings"
)

// MeasureStart does what a process does before its first work on a GPU, and returns what the parts took in us, by their
// names in package ceilings. Only the first call in a process that has not used CUDA says what a start costs.
func MeasureStart(index int) (us map[string]float64, err error) {
	us = map[string]float64{}
	last := time.Now()
	took := func(name string) {
		now := time.Now()
		us[name] = float64(max(1, now.Sub(last))) / 1e3
		last = now
	}
	lib, err := Open()
	if err != nil {
		return nil, err
	}
	d, err := lib.Device(index)
	if err != nil {
		return nil, err
	}
	took(ceilings.CUDADriver)
	if err := lib.OpenBLAS(); err != nil {
		return nil, err
	}
	took(ceilings.CUBLASLt)
	s, err := d.NewStream()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	b, err := d.Alloc(1 << 20)
	if err != nil {
		return nil, err
	}
	err = s.Synchronize()
	took(ceilings.CUDAContext)
	return us, errors.Join(err, b.Free())
}
