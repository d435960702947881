package cli

import (
	"fmt"
	"syscall"
)

// Interruption is why a context was cancelled: a signal came.
type Interruption struct{ Signal syscall.Signal }

func (i Interruption) Error() string {
	if i.Signal == syscall.SIGINT {
		return "interrupted"
	}
	return i.Signal.String()
}

// UsageError is a mistake in the command line: an unknown word or flag, or a value that is
// wrong whatever the files hold and the machine has, or wrong for the model.
type UsageError struct{ error }

func (e UsageError) Unwrap() error { return e.error }

// Usagef makes a UsageError.
func Usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }
