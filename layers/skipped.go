package layers

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// skipped are the tasks that failed alone ([ErrSkipped]). Tasks of a kind that failed for the same reason, numbers
// aside, share a note.
type skipped []*skip

type skip struct {
	kind   string // the task and the reason, without numbers
	what   string
	labels []string
	err    error // of the first task
}

var numbers = regexp.MustCompile(`[0-9.,]+`)

// add records a task that failed.
func (s *skipped) add(t Task, err error) {
	kind := t.What + numbers.ReplaceAllString(err.Error(), "")
	at := slices.IndexFunc(*s, func(k *skip) bool { return k.kind == kind })
	if at < 0 {
		at = len(*s)
		*s = append(*s, &skip{kind: kind, what: t.What, err: err})
	}
	if k := (*s)[at]; !slices.Contains(k.labels, t.Variant.Label) {
		k.labels = append(k.labels, t.Variant.Label)
	}
}

// notes returns a sentence for each reason, with the error of the first task.
func (s skipped) notes() (notes []string) {
	for _, k := range s {
		notes = append(notes, fmt.Sprintf("%s of %s: %v.", k.what, strings.Join(k.labels, ", "), k.err))
	}
	return notes
}
