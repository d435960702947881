package learn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"strings"
	"time"

	"gpt2scope/cuda"
	"gpt2scope/internal/chart"
)

// Env is what experiments may use.
type Env struct {
	Device *cuda.Device // nil without a GPU
	NoGPU  string       // why there is none
	Self   []string     // a command that runs a Program: it is called with the name and the arguments
	Infer  []string     // the command infer, for lessons that record a run of it
	Quick  bool         // small sizes and few repeats, for tests: the figures mean nothing
}

// pick returns the first number, the second if the environment is quick.
func (e *Env) pick(n, quick int) int {
	if e.Quick {
		return quick
	}
	return n
}

// run runs a Program in a process of its own, for at most a minute, and returns what it wrote.
func (e *Env) run(ctx context.Context, name string, args ...string) ([]byte, error) {
	if len(e.Self) == 0 {
		return nil, fmt.Errorf("%w: no command is given that runs %s in a process of its own", errNotHere, name)
	}
	return e.command(ctx, append(append(e.Self[:len(e.Self):len(e.Self)], name), args...))
}

func (e *Env) command(ctx context.Context, words []string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, words[0], words[1:]...)
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := c.Run(); err != nil {
		if last := strings.TrimSpace(stderr.String()); last != "" {
			return stdout.Bytes(), fmt.Errorf("%s: %w: %s", strings.Join(words[1:], " "), err, last[strings.LastIndexByte(last, '\n')+1:])
		}
		return stdout.Bytes(), fmt.Errorf("%s: %w", strings.Join(words[1:], " "), err)
	}
	return stdout.Bytes(), nil
}

// Result is a lesson that was run.
type Result struct {
	Number  int     `json:"number"`
	Claim   string  `json:"claim"`
	Verdict Verdict `json:"verdict,omitempty"` // refuted if a part refutes, else shown if a part shows; absent in the list of lessons
	Parts   []Part  `json:"parts,omitempty"`
	Why     string  `json:"why,omitempty"`
	GoOn    string  `json:"go_on,omitempty"`
}

// Part is what one experiment of a lesson found.
type Part struct {
	Device   string `json:"device"`             // "cpu" or "gpu"
	Machine  string `json:"machine,omitempty"`  // the processor on which it was measured
	Recorded string `json:"recorded,omitempty"` // the date of the recording; absent if it was measured now
	Reason   string `json:"reason,omitempty"`   // why it was not measured now
	Finding
	Data    Data          `json:"data,omitempty"`
	Picture chart.Picture `json:"-"`
	Failed  error         `json:"-"` // of the experiment
}

// Devices of parts.
const (
	OnCPU = "cpu"
	OnGPU = "gpu"
)

// experiment returns the experiment of a device.
func (l *Lesson) experiment(device string) *Experiment {
	if device == OnGPU {
		return l.GPU
	}
	return l.CPU
}

// Run runs a lesson. What cannot run here comes from the recording, which may be nil. The error
// is that of the context.
func Run(ctx context.Context, e *Env, l *Lesson, m Machine, recording *Recording) (Result, error) {
	return l.result(ctx, func(device string) Part {
		x := l.experiment(device)
		var data Data
		var err error
		if device == OnGPU && e.Device == nil {
			err = fmt.Errorf("%w: %s", errNotHere, e.NoGPU)
		} else {
			data, err = x.Run(ctx, e)
		}
		if err == nil {
			p := partOf(x, device, data)
			p.Machine = m.name(device)
			return p
		}
		p := recording.part(l, device)
		p.Reason = reason(err)
		if !errors.Is(err, errNotHere) {
			p.Failed = err
		}
		return p
	})
}

// Judge makes the result of a lesson of the data of a recording, which may be nil. Its error is that of the context.
func Judge(ctx context.Context, l *Lesson, recording *Recording) (Result, error) {
	return until(ctx, func() (Result, error) {
		return l.result(ctx, func(device string) Part { return recording.part(l, device) })
	})
}

// until returns what f returns, or the cause of the context if that ends first: f, which may take minutes for a
// recording of millions of points, is then left alone, since the program ends.
func until[T any](ctx context.Context, f func() (T, error)) (result T, err error) {
	done := make(chan struct{})
	var found T
	var failed error
	go func() {
		defer close(done)
		found, failed = f()
	}()
	select {
	case <-done:
		return found, failed
	case <-ctx.Done():
		return result, context.Cause(ctx)
	}
}

func (l *Lesson) result(ctx context.Context, part func(device string) Part) (Result, error) {
	r := Result{Number: l.Number, Claim: l.Claim, Verdict: Unknown, Why: l.Why, GoOn: l.GoOn}
	for _, device := range []string{OnCPU, OnGPU} {
		if l.experiment(device) == nil {
			continue
		}
		p := part(device)
		if err := context.Cause(ctx); err != nil {
			return r, err
		}
		if p.Verdict == Refuted || p.Verdict == Shown && r.Verdict == Unknown { // one counterexample refutes
			r.Verdict = p.Verdict
		}
		r.Parts = append(r.Parts, p)
	}
	return r, nil
}

// reason says why an experiment was not run.
func reason(err error) string {
	return strings.TrimPrefix(err.Error(), errNotHere.Error()+": ")
}

// partOf judges data.
func partOf(x *Experiment, device string, data Data) Part {
	p := Part{Device: device, Data: data, Finding: x.judge(data)}
	if x.Picture != nil && len(data) > 0 {
		p.Picture = x.Picture(data)
	}
	return p
}

// judge is Judge of data that may lack what it needs: a figure of nothing decides nothing.
func (x *Experiment) judge(data Data) Finding {
	if len(data) == 0 {
		return undecided("There are no data.")
	}
	f := x.Judge(data)
	for _, figure := range f.Figures {
		if math.IsNaN(figure.Value) || math.IsInf(figure.Value, 0) {
			return undecided(fmt.Sprintf("The data do not give the figure %q.", figure.Name))
		}
	}
	return f
}

// Name names the device for people.
func (p Part) Name() string {
	if p.Device == OnGPU {
		return "GPU"
	}
	return "CPU"
}

// Heading says where and when the data were measured.
func (p Part) Heading() string {
	switch {
	case p.Recorded != "":
		return fmt.Sprintf("%s, recorded on %s on %s", p.Name(), p.Recorded, p.Machine)
	case p.Machine != "":
		return fmt.Sprintf("%s, measured now on %s", p.Name(), p.Machine)
	}
	return p.Name()
}
