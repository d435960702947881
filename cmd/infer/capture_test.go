package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// switched notes after which tokens the profiler was turned on (positive) and off.
type switched struct {
	now  int
	seen []int
	fail bool
}

func (s *switched) Profiler(on bool) error {
	if s.fail {
		return errors.New("no device")
	}
	if !on {
		s.now = -s.now
	}
	s.seen = append(s.seen, s.now)
	return nil
}

func TestCaptureRange(t *testing.T) {
	for _, c := range []struct {
		steps, tokens int
		want          []int
	}{
		{0, 20, nil},
		{3, 20, []int{captureWarmUp, -(captureWarmUp + 3)}},
		{1, 20, []int{captureWarmUp, -(captureWarmUp + 1)}},
		{9, captureWarmUp + 2, []int{captureWarmUp, -(captureWarmUp + 2)}}, // the text ended
		{9, captureWarmUp - 1, nil},
	} {
		var s switched
		r := captureRange{device: &s, steps: c.steps}
		for i := range c.tokens {
			s.now = i + 1
			if err := r.token(); err != nil {
				t.Fatal(err)
			}
		}
		s.now = c.tokens
		for range 2 { // twice does no more
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(s.seen, c.want) {
			t.Errorf("%d steps of %d tokens: switched at %v, want %v", c.steps, c.tokens, s.seen, c.want)
		}
	}
	r := captureRange{device: &switched{fail: true}, steps: 1, tokens: captureWarmUp - 1}
	if err := r.token(); err == nil || !strings.Contains(err.Error(), "no device") {
		t.Errorf("a profiler that fails gives %v", err)
	}
}
