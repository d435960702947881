package cupti

import (
	"errors"
	"fmt"
)

// What keeps a recorder from working, for errors.Is.
var (
	ErrAbsent  = errors.New("CUPTI is not there")              // a library is missing, or does not fit
	ErrBusy    = errors.New("CUPTI has another subscriber")    // a tool is attached, or a recorder is open
	ErrRefused = errors.New("the system refuses to be traced") // privileges, MIG, virtual devices
)

// An Error is a sentence that says why CUPTI failed, and what to do.
type Error struct {
	Text string
	Code int    // CUptiResult, 0 where no call of CUPTI failed
	Call string // the function that failed, "" where none did
	kind error
}

func (e *Error) Error() string { return e.Text }

// Unwrap gives [ErrAbsent], [ErrBusy], [ErrRefused] or nil.
func (e *Error) Unwrap() error { return e.kind }

func failure(kind error, format string, args ...any) *Error {
	return &Error{Text: fmt.Sprintf(format, args...), kind: kind}
}

const busyCode = 39 // CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED

// What to do about a CUptiResult, by its number in cupti_result.h.
var results = map[int]struct {
	kind error
	text string
}{
	15: {ErrAbsent, "the NVIDIA driver cannot be used, or is older than this CUPTI needs: update the " +
		"driver, or take the CUPTI of an older CUDA"},
	23: {ErrBusy, "another profiler has switched CUPTI off: end it first"},
	33: {ErrRefused, "this virtual GPU cannot be traced: use a GPU of its own"},
	35: {ErrRefused, "this user may not trace the GPU: run as root, or let the administrator load the NVIDIA " +
		"driver with NVreg_RestrictProfilingToAdminUsers=0 (developer.nvidia.com/ERR_NVGPUCTRPERM)"},
	38: {ErrRefused, "this CUPTI does not support the GPU: take the CUPTI of a newer CUDA"},
	busyCode: {ErrBusy, "it already has a subscriber, as under Nsight Systems, Nsight Compute, cuda-gdb or another " +
		"profiler in this process, so this recorder steps aside: read that tool's recording, or run without it"},
	40: {ErrRefused, "the hypervisor does not allow this GPU to be traced: its administrator can allow it"},
	41: {ErrRefused, "a GPU in confidential computing mode cannot be traced: use one that is not"},
	42: {ErrRefused, "this device cannot be traced: use another GPU"},
	43: {ErrRefused, "a GPU divided by MIG cannot be traced: use a whole GPU"},
	44: {ErrRefused, "GPUs linked by SLI cannot be traced: use another GPU"},
	45: {ErrRefused, "a GPU under WSL cannot be traced with this driver: use Linux itself, or a newer driver"},
}
