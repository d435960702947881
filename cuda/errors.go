package cuda

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"
)

// ErrFreed is returned by the use of an object that was freed or closed.
var ErrFreed = errors.New("it was freed")

// ErrOutOfMemory is matched by errors of allocations for which the device has no room.
var ErrOutOfMemory = errors.New("out of GPU memory")

// ErrNoKernel is matched by errors of launches for whose shape, type or device there is no kernel. Nothing was
// launched.
var ErrNoKernel = errors.New("there is no such kernel")

// Error is a call of the library that failed.
type Error struct {
	Call   string // the function of abi.h, such as "gs_alloc"
	Status int    // a gs_status
	Text   string // the library's words
}

func (e *Error) Error() string {
	if e.Text == "" {
		return fmt.Sprintf("%s: status %d", e.Call, e.Status)
	}
	return fmt.Sprintf("%s: %s", e.Call, e.Text)
}

// Numbers of cudaError_t that callers must tell from others.
const (
	outOfMemory        = 2   // cudaErrorMemoryAllocation
	cooperativeTooMany = 720 // cudaErrorCooperativeLaunchTooLarge
)

// Is makes running out of device memory match ErrOutOfMemory. What has no kernel, and a grid whose blocks cannot all be
// resident at once, match ErrNoKernel.
func (e *Error) Is(target error) bool {
	switch e.Status {
	case outOfMemory:
		return target == ErrOutOfMemory
	case C.GS_UNSUPPORTED, cooperativeTooMany:
		return target == ErrNoKernel
	}
	return false
}

// ShapeError is an argument that does not fit, found before anything was launched.
type ShapeError struct {
	Op   string // the method, such as "Linear"
	Text string // what does not fit, with the numbers
}

func (e *ShapeError) Error() string { return e.Op + ": " + e.Text }

// failed turns the result of a call into an error, nil where it went well.
func failed(r C.gs_result) error {
	if r.status == 0 {
		return nil
	}
	e := &Error{Call: C.GoString(r.call), Status: int(r.status)}
	if r.text != nil {
		e.Text = C.GoString(r.text)
		C.free(unsafe.Pointer(r.text))
	}
	if r.status == C.GS_FREED {
		return fmt.Errorf("%s: the %s: %w", e.Call, e.Text, ErrFreed)
	}
	return e
}

// UnavailableError says what is missing for CUDA, and what to do.
type UnavailableError struct {
	NoGPU   bool     // the library is nowhere, and would be of no use: the machine has no NVIDIA GPU
	Looked  []string // where a library was looked for
	Runtime int      // CUDA version of the library as 1000 * major + 10 * minor, if the driver is missing or too old
	text    string
}

func (e *UnavailableError) Error() string {
	if len(e.Looked) > 0 {
		return e.text + "; looked at " + strings.Join(e.Looked, ", ")
	}
	return e.text
}

func unavailable(looked []string, format string, args ...any) error {
	return &UnavailableError{Looked: looked, text: fmt.Sprintf(format, args...)}
}
