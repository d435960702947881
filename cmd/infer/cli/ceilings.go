package cli

import (
	"context"
	"errors"
	"fmt"

	"gpt2scope/ceilings"
	"gpt2scope/gpt2"
)

// StoredCeilings finds what was measured of a backend's device before. A recording takes its floors from that: it does
// not measure. An error says why what is stored cannot be used, or that the device has no ceilings.
func StoredCeilings(backend gpt2.Backend) (set ceilings.Set, found bool, err error) {
	b, ok := backend.(gpt2.CeilingMeasurer)
	if !ok {
		return set, false, ErrNoCeilings
	}
	key, err := b.CeilingsKey()
	if err != nil {
		return set, false, err
	}
	return ceilings.Load(key)
}

var ErrNoCeilings = errors.New("the reference device has no ceilings: it is plain Go; " +
	"use --device cpu or --device cuda")

// CeilingsOf returns what a backend's device can do, from the file of earlier measurements if it is there and again is
// false. What is measured is stored there; if that fails, a notice says so.
func CeilingsOf(ctx context.Context, backend gpt2.Backend, m *ModelFlags, again bool) (
	set ceilings.Set, stored bool, err error) {
	set, found, err := StoredCeilings(backend)
	switch {
	case errors.Is(err, ErrNoCeilings):
		return set, false, err
	case found && !again:
		return set, true, nil
	case err != nil && !again:
		m.Notice(err.Error() + "; ceilings are measured again")
	}
	stop := m.Spin("measuring what the device can do")
	set, err = backend.(gpt2.CeilingMeasurer).MeasureCeilings(ctx)
	stop()
	if err != nil {
		return set, false, err
	}
	if err := ceilings.Store(ctx, set); err != nil && ctx.Err() == nil {
		m.Notice(err.Error())
	}
	return set, false, nil
}

// Digits writes a positive number with about four digits.
func Digits(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.3f", v)
}
