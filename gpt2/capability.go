package gpt2

import (
	"context"
	"fmt"
	"time"

	"gpt2scope/record"
)

// Record records all later passes until [Session.StopRecording]. The runner must be [Recordable].
func (s *Session) Record(r *record.Recorder) error {
	if s.err != nil {
		return s.err
	}
	runner, ok := s.runner.(Recordable)
	if !ok {
		return unsupported(s.backend, "record passes")
	}
	return runner.StartRecording(r)
}

// StopRecording gives the recorder the events of the passes that were recorded. Without
// [Session.Record] before it, it does nothing.
func (s *Session) StopRecording() error {
	if runner, ok := s.runner.(Recordable); ok {
		return runner.StopRecording()
	}
	return nil
}

// Measure times passes at the present position. The runner must be [OnDevice].
func (s *Session) Measure(ctx context.Context, ids []int32, pass Pass, repeat int) ([]time.Duration, error) {
	if err := s.admitPass(ids, pass); err != nil {
		return nil, err
	}
	if repeat < 1 {
		return nil, fmt.Errorf("%d repetitions; there must be at least one", repeat)
	}
	if s.device == nil {
		return nil, unsupported(s.backend, "time passes by itself")
	}
	times, err := s.device.Measure(ctx, ids, pass, repeat)
	if err == nil && len(times) == 0 {
		return nil, fmt.Errorf("the %s backend measured nothing", s.backend.Name())
	}
	return times, s.fail(ctx, err)
}

// admitPass checks a pass at the present position before a runner does it.
func (s *Session) admitPass(ids []int32, pass Pass) error {
	if s.err != nil {
		return s.err
	}
	if pass.Batch != s.options.Batch {
		return fmt.Errorf("the session has %d sequences and the pass %d", s.options.Batch, pass.Batch)
	}
	if err := pass.Check(s.model.Config, s.options.Layers, s.options.Context-s.Position()); err != nil {
		return err
	}
	if len(ids) != pass.Batch*pass.Tokens {
		return fmt.Errorf("%d ids for a pass of %d x %d tokens", len(ids), pass.Batch, pass.Tokens)
	}
	return s.checkIDs(ids)
}

// Launches returns how many launches a pass is. The runner must be [OnDevice].
func (s *Session) Launches(pass Pass) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	if s.device == nil {
		return 0, unsupported(s.backend, "count launches")
	}
	return s.device.Launches(pass)
}

// Loads returns what passes had to load since the session began or was reset, and how long that took: part of the times
// of [Stats]. It is empty if the runner is not [OnDevice].
func (s *Session) Loads() []Load {
	if s.device == nil || s.err == ErrClosed {
		return nil
	}
	var since []Load
	for _, l := range s.device.Loads() {
		for _, before := range s.loaded {
			if before.What == l.What {
				l.Time -= before.Time
			}
		}
		if l.Time > 0 {
			since = append(since, l)
		}
	}
	return since
}

// Synchronize waits until the device has done all that was launched. It does nothing
// if the runner is not [OnDevice], since passes then end before they return.
func (s *Session) Synchronize() error {
	if s.err != nil || s.device == nil {
		return s.err
	}
	return s.device.Synchronize()
}
