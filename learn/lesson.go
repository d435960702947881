package learn

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"gpt2scope/auto"
	"gpt2scope/internal/chart"
)

// Lesson is a claim with experiments that test it.
type Lesson struct {
	Number   int
	Claim    string      // as people say it, one line
	CPU, GPU *Experiment // nil if there is none
	Why      string      // explains the verdict; the figures come from the findings
	GoOn     string      // a command with which the reader goes on
	DataOf   int         // the lesson whose recorded data it judges too; 0 for its own
	programs map[string]func(l *lab, args []string)
}

// Experiment measures, and judges what was measured.
type Experiment struct {
	Of      string // in place of the machine and date, of one that measures nothing: "Computed for ..."
	Run     func(l *lab)
	Judge   func(d Data) Finding
	Picture func(d Data) chart.Picture // nil if there is none
}

//go:embed *.cu
var cudaFiles embed.FS

func source(name string) string {
	text, err := cudaFiles.ReadFile(name)
	if err != nil {
		panic(err) // the name of a file that is not there
	}
	return string(text)
}

// Program is a part of an experiment that runs in a process of its own; it writes its data.
type Program func(ctx context.Context, args []string, w io.Writer) error

// Verdict is what data say about a claim.
type Verdict string

const (
	Shown    Verdict = "shown"
	HalfTrue Verdict = "half true" // the text says which half
	Refuted  Verdict = "refuted"
	Unknown  Verdict = "cannot be shown here" // the data do not decide, or there are none
)

// Finding is what Judge makes of data.
type Finding struct {
	Verdict Verdict  `json:"verdict"`
	Text    string   `json:"text"`            // what was found, figures first
	Lines   []string `json:"lines,omitempty"` // a table in letters of one width
	Figures []Figure `json:"figures,omitempty"`
}

// rule is a verdict with its condition, and the sentence that it adds to a finding.
type rule struct {
	verdict  Verdict
	holds    bool
	sentence string
}

// decide is the finding with the verdict of the first rule that holds, Unknown if none does.
func (f Finding) decide(rules ...rule) Finding {
	f.Verdict = Unknown
	if i := slices.IndexFunc(rules, func(r rule) bool { return r.holds }); i >= 0 {
		f.Verdict = rules[i].verdict
		f.Text = strings.TrimSpace(f.Text + " " + rules[i].sentence)
	}
	return f
}

// undecided is a finding of data that do not decide.
func undecided(text string, figures ...Figure) Finding {
	return Finding{Verdict: Unknown, Text: text, Figures: figures}
}

// lessons are all lessons. The order is that of their numbers, which a test checks.
var lessons = []*Lesson{
	&lesson01, &lesson02, &lesson03, &lesson04, &lesson05, &lesson06, &lesson07, &lesson08, &lesson09, &lesson10,
	&lesson11, &lesson12, &lesson13, &lesson14, &lesson15, &lesson16, &lesson17, &lesson18, &lesson19, &lesson20,
	&lesson21, &lesson22, &lesson23, &lesson24, &lesson25,
}

// All returns the lessons in the order of their numbers. They must not be changed.
func All() []*Lesson { return slices.Clone(lessons) }

// Find returns the lesson of a number, nil if there is none.
func Find(number int) *Lesson {
	if i := slices.IndexFunc(lessons, func(l *Lesson) bool { return l.Number == number }); i >= 0 {
		return lessons[i]
	}
	return nil
}

// FindProgram returns the program of a name, nil if there is none.
func FindProgram(name string) Program {
	for _, l := range lessons {
		if program := l.programs[name]; program != nil {
			return func(ctx context.Context, args []string, w io.Writer) error {
				d, err := measure(ctx, &Env{}, func(l *lab) { program(l, args) })
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				return json.NewEncoder(w).Encode(d)
			}
		}
	}
	return nil
}

// Result is a lesson that was run.
type Result struct {
	Number int    `json:"number"`
	Claim  string `json:"claim"`
	// Verdict is that of the parts that decide, half true if they differ; absent in the list of lessons
	Verdict Verdict `json:"verdict,omitempty"`
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
	Of       string `json:"of,omitempty"`       // what was computed, and of which recording, if nothing was measured
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

func (l *Lesson) experiment(device string) *Experiment {
	if device == OnGPU {
		return l.GPU
	}
	return l.CPU
}

// Run runs a lesson. What cannot run here comes from the recording, which may be nil. The error is that of the context.
func Run(ctx context.Context, e *Env, l *Lesson, m Machine, recording *Recording) (Result, error) {
	return l.result(ctx, func(device string) Part {
		x := l.experiment(device)
		var data Data
		err := fmt.Errorf("%w: %s", errNotHere, e.NoGPU)
		if device == OnCPU || e.Device != nil {
			data, err = measure(ctx, e, x.Run)
		}
		if w := auto.Waited(); device == OnCPU && err == nil && !e.Quick && x.Of == "" && w > mostWaited {
			data.add(otherWork, "waited_share", 0, w)
		}
		if err == nil {
			p := x.part(device, data)
			if x.Of == "" {
				p.Machine = m.name(device)
			}
			return p
		}
		p := recording.part(l, device)
		p.Reason = strings.TrimPrefix(err.Error(), errNotHere.Error()+": ")
		if !errors.Is(err, errNotHere) {
			p.Failed = err
		}
		return p
	})
}

// Judge makes the result of a lesson of the data of a recording, which may be nil. Millions of points take minutes.
func Judge(ctx context.Context, l *Lesson, recording *Recording) (Result, error) {
	return l.result(ctx, func(device string) Part { return recording.part(l, device) })
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
		switch {
		case r.Verdict == Unknown:
			r.Verdict = p.Verdict
		case p.Verdict != Unknown && p.Verdict != r.Verdict:
			r.Verdict = HalfTrue
		}
		r.Parts = append(r.Parts, p)
	}
	return r, nil
}

func (x *Experiment) part(device string, data Data) Part {
	p := Part{Device: device, Data: data, Finding: x.judge(data), Of: x.Of}
	if x.Picture != nil && len(data) > 0 {
		p.Picture = x.Picture(data)
	}
	return p
}

// otherWork is the case of the share of the time that threads waited for a processor, and mostWaited the most at which
// times still say something.
const (
	otherWork  = "other work"
	mostWaited = 0.25
)

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
	timed := slices.ContainsFunc(data, func(p Point) bool { return strings.HasSuffix(p.Quantity, "_us") })
	if w := data.values(otherWork, "waited_share"); len(w) > 0 && timed {
		return undecided(fmt.Sprintf("Other programs ran: threads waited for a processor for %.0f %% of the time, so that these "+
			"figures say nothing about the claim. Run it again on an idle machine.", 100*w[0]), f.Figures...)
	}
	return f
}

// Name names the device for people.
func (p Part) Name() string { return strings.ToUpper(p.Device) }

// Heading says where and when the data were measured.
func (p Part) Heading() string {
	switch {
	case p.Of != "":
		return p.Of
	case p.Recorded != "":
		return fmt.Sprintf("%s, recorded on %s on %s", p.Name(), p.Recorded, p.Machine)
	case p.Machine != "":
		return fmt.Sprintf("%s, measured now on %s", p.Name(), p.Machine)
	}
	return p.Name()
}
