package layers

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

// Tasks that fail for the same reason share a note, also if its numbers differ, as those of a busy host do.
func TestSkipped(t *testing.T) {
	var s skipped
	busy := func(percent float64) error {
		return fmt.Errorf("the CPU share of the threads was %.1f %%; %w", percent, ErrSkipped)
	}
	for i := range 6 {
		s.add(Task{What: TaskDecode, Variant: Depth(3, 3), Repeat: i + 1}, busy(50.5+float64(i)))
	}
	s.add(Task{What: TaskEnergy, Variant: Depth(1, 3), Repeat: 1}, busy(1))
	s.add(Task{What: TaskEnergy, Variant: Depth(2, 3), Repeat: 1}, busy(20))
	s.add(Task{What: TaskDecode, Variant: Depth(3, 3), Repeat: 1}, errors.New("the recording has no layers"))
	want := []string{
		"decode of 3: the CPU share of the threads was 50.5 %; measurement skipped.",
		"energy of 1, 2: the CPU share of the threads was 1.0 %; measurement skipped.",
		"decode of 3: the recording has no layers.",
	}
	if got := s.notes(); !slices.Equal(got, want) {
		t.Errorf("notes are\n%q, want\n%q", got, want)
	}
}
