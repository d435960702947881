package layers

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// skipped collects the tasks that failed alone ([ErrSkipped]). Tasks of a kind that failed
// for the same reason, numbers aside, share a note.
type skipped struct{ groups []skippedGroup }

type skippedGroup struct {
	what, reason string
	err          error // of the first task
	labels       []string
	tasks        int
}

// add records a task that failed.
func (s *skipped) add(t Task, err error) {
	reason := strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) || r == '.' || r == ',' {
			return -1
		}
		return r
	}, err.Error())
	at := slices.IndexFunc(s.groups, func(g skippedGroup) bool { return g.what == t.What && g.reason == reason })
	if at < 0 {
		at = len(s.groups)
		s.groups = append(s.groups, skippedGroup{what: t.What, reason: reason, err: err})
	}
	g := &s.groups[at]
	g.tasks++
	if !slices.Contains(g.labels, t.Variant.Label) {
		g.labels = append(g.labels, t.Variant.Label)
	}
}

// notes returns a sentence for each reason, with the error of the first task.
func (s *skipped) notes() []string {
	var notes []string
	for _, g := range s.groups {
		times := ""
		if g.tasks > 1 {
			times = fmt.Sprintf(" (%d times)", g.tasks)
		}
		notes = append(notes, fmt.Sprintf("%s of %s%s: %v.", g.what, strings.Join(g.labels, ", "), times, g.err))
	}
	return notes
}
