package measure

import (
	"context"
	"errors"
	"time"

	"gpt2scope/gpt2"
	"gpt2scope/record"
)

// Stages is [Pass] while the passes are recorded, on a runner that does not time passes itself. What comes before them
// is warm-up.
func Stages(ctx context.Context, s *gpt2.Session, pass gpt2.Pass, past, repeat int, to *record.Recorder) (Times, error) {
	if err := s.Record(to); err != nil {
		return Times{}, err
	}
	warm := to.WarmUp()
	err := prepare(ctx, s, pass, past)
	var times []time.Duration
	if err == nil {
		times, err = alone(ctx, s, IDs(s.Model(), pass.Batch*pass.Tokens), pass, past, repeat, warm)
	}
	if err = errors.Join(err, s.StopRecording(), s.Reset()); err != nil {
		return Times{}, err
	}
	return newTimes(times), nil
}
