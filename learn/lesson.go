package learn

import (
	"context"
	"errors"
	"io"
	"slices"

	"gpt2scope/internal/chart"
)

// Lesson is a claim with experiments that test it.
type Lesson struct {
	Number   int
	Claim    string      // as people say it, one line
	CPU, GPU *Experiment // nil if there is none
	Why      string      // explains the verdict; the figures come from the findings
	GoOn     string      // a command with which the reader goes on
	Programs map[string]Program
}

// Experiment measures, and judges what was measured.
type Experiment struct {
	Run     func(ctx context.Context, e *Env) (Data, error)
	Judge   func(d Data) Finding
	Picture func(d Data) chart.Picture // nil if there is none
	Sources []Source                   // CUDA C++ that Run compiles
}

// Source is a program text.
type Source struct{ Name, Text string }

// Program is a part of an experiment that runs in a process of its own; it writes its result.
type Program func(ctx context.Context, args []string, w io.Writer) error

// Verdict is what data say about a claim.
type Verdict string

// The verdicts.
const (
	Shown   Verdict = "shown"
	Refuted Verdict = "refuted"
	Unknown Verdict = "cannot be shown here" // the data do not decide, or there are none
)

// Finding is what Judge makes of data.
type Finding struct {
	Verdict Verdict  `json:"verdict"`
	Text    string   `json:"text"`            // what was found, figures first
	Lines   []string `json:"lines,omitempty"` // a table or a drawing, in letters of one width
	Figures []Figure `json:"figures,omitempty"`
}

// undecided is a finding of data that do not decide.
func undecided(text string, figures ...Figure) Finding {
	return Finding{Verdict: Unknown, Text: text, Figures: figures}
}

// errNotHere is why an experiment cannot run on a machine. It is no failure.
var errNotHere = errors.New("it cannot run here")

// lessons are all lessons. The order is that of their numbers, which a test checks.
var lessons = []*Lesson{
	&lesson01,
	&lesson02,
	&lesson03,
	&lesson04,
	&lesson05,
	&lesson06,
	&lesson07,
	&lesson08,
	&lesson09,
	&lesson10,
	&lesson11,
	&lesson12,
	&lesson13,
	&lesson14,
	&lesson15,
	&lesson16,
	&lesson17,
	&lesson18,
	&lesson19,
	&lesson20,
}

// All returns the lessons in the order of their numbers. They must not be changed.
func All() []*Lesson { return slices.Clone(lessons) }

// Find returns the lesson of a number, nil if there is none.
func Find(number int) *Lesson {
	for _, l := range lessons {
		if l.Number == number {
			return l
		}
	}
	return nil
}

// FindProgram returns the program of a name, nil if there is none.
func FindProgram(name string) Program {
	for _, l := range lessons {
		if p := l.Programs[name]; p != nil {
			return p
		}
	}
	return nil
}
