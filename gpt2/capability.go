package gpt2

import "gpt2scope/record"

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
