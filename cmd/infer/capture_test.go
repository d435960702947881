package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/cpu"
	"gpt2scope/gpt2"
)

// switched notes after which tokens the device was waited for and the profiler
// turned on and off.
type switched struct {
	now  int
	seen []string
	fail bool
}

func (s *switched) note(what string) { s.seen = append(s.seen, fmt.Sprint(s.now, " ", what)) }

func (s *switched) Synchronize() error {
	s.note("wait")
	return nil
}

func (s *switched) Profiler(on bool) error {
	if s.fail {
		return errors.New("no device")
	}
	s.note(map[bool]string{true: "on", false: "off"}[on])
	return nil
}

func TestCaptureRange(t *testing.T) {
	model, err := gpt2.Random(tiny)
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	backend, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Close()
	for _, c := range []struct {
		steps, tokens int
		want          []string
		whole         bool
	}{
		{0, 20, nil, true},
		{3, 20, []string{"4 wait", "4 on", "7 wait", "7 off"}, true},
		{1, 5, []string{"4 wait", "4 on", "5 wait", "5 off"}, true},
		{9, 6, []string{"4 wait", "4 on", "6 off"}, false}, // the text ended
		{9, 3, nil, false},
	} {
		session, err := gpt2.NewSession(t.Context(), model, backend, gpt2.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var s switched
		r := captureRange{device: &s, session: &s, steps: c.steps}
		for _, err := range session.Generate(t.Context(), []int32{1}, r.generation(gpt2.Generation{Tokens: 30, IgnoreEOS: true})) {
			if err != nil {
				t.Fatal(err)
			}
			if s.now++; s.now == c.tokens {
				break
			}
		}
		// After a break at the last of its tokens a text has no pause: it could not be told what follows.
		if c.whole && c.steps > 0 && c.tokens == r.needs() {
			if err := r.pause(s.now); err != nil {
				t.Fatal(err)
			}
		}
		err = r.finish(s.now)
		if (err == nil) != c.whole || err != nil && !strings.Contains(err.Error(), fmt.Sprintf("ended after %d tokens", c.tokens)) {
			t.Errorf("%d steps of %d tokens: %v", c.steps, c.tokens, err)
		}
		r.stop() // does no more
		if !slices.Equal(s.seen, c.want) {
			t.Errorf("%d steps of %d tokens: %q, want %q", c.steps, c.tokens, s.seen, c.want)
		}
		session.Close()
	}
	r := captureRange{device: &switched{fail: true}, session: new(switched), steps: 1}
	if err := r.pause(captureWarmUp); err == nil || !strings.Contains(err.Error(), "no device") {
		t.Errorf("a profiler that fails gives %v", err)
	}
}

func TestCaptureRangeFlag(t *testing.T) {
	args := []string{"-m", tiny, "-p", "ROMEO:", "--ignore-eos", "--device", "cpu", "-s", "1", "--quiet"}
	plain := mustInfer(t, with(args, "-n", "20")...)
	if captured := mustInfer(t, with(args, "-n", "20", "--capture-range", "5")...); captured.stdout != plain.stdout {
		t.Error("a capture changes the text")
	}
	mustInfer(t, with(args, "-n", "9", "--capture-range", "5")...)
	checkFailure(t, infer(t, with(args, "-n", "8", "--capture-range", "5")...), exitUsage, "--capture-range 5", "4 tokens besides", "--tokens is 8")
	checkFailure(t, infer(t, with(args, "-n", "20", "--capture-range", fmt.Sprint(math.MaxInt))...), exitUsage, "--capture-range")
	checkFailure(t, infer(t, with(args, "-n", "20", "--capture-range", "-1")...), exitUsage, "--capture-range -1")
	// 6 tokens of the prompt, and all but the last of those made, fill the context of 64.
	mustInfer(t, with(args, "-n", "80", "--capture-range", "55")...)
	checkFailure(t, infer(t, with(args, "-n", "80", "--capture-range", "56")...), exitUsage, "--capture-range 56", "context of 64")
	if e := infer(t, with(args, "-n", "20", "--capture-range", "12", "--stop", plain.stdout[12:14])...); e.status != exitFailure || !strings.Contains(e.stderr, "the text ended after") {
		t.Errorf("a text that ends in a capture: status %d, %q", e.status, e.stderr)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cli.Interruption{Signal: 2})
	if e := inferWith(t, ctx, "", with(args, "-n", "20", "--capture-range", "5")...); e.status != exitSignal+2 {
		t.Errorf("an interrupted capture: status %d, %q", e.status, e.stderr)
	}
}
