package cupti

import (
	"errors"
	"fmt"
)

// ErrUnavailable is matched by errors that say why CUPTI cannot be used here, and what to do: a library is missing, CUPTI
// has another subscriber, or the system refuses to be traced. Others are failures.
var ErrUnavailable = errors.New("CUPTI cannot be used")

type unavailable string

func (u unavailable) Error() string { return string(u) }

func (unavailable) Is(target error) bool { return target == ErrUnavailable }

func failure(format string, args ...any) error { return unavailable(fmt.Sprintf(format, args...)) }

const busyCode = 39 // CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED

// What to do about a CUptiResult, by its number in cupti_result.h.
var results = map[int]string{
	15: "the NVIDIA driver cannot be used, or is older than this CUPTI needs: update the " +
		"driver, or take the CUPTI of an older CUDA",
	23: "another profiler has switched CUPTI off: end it first",
	33: "this virtual GPU cannot be traced: use a GPU of its own",
	35: "this user may not trace the GPU: run as root, or let the administrator load the NVIDIA " +
		"driver with NVreg_RestrictProfilingToAdminUsers=0 (developer.nvidia.com/ERR_NVGPUCTRPERM)",
	38: "this CUPTI does not support the GPU: take the CUPTI of a newer CUDA",
	busyCode: "it already has a subscriber, as under Nsight Systems, Nsight Compute, cuda-gdb or another " +
		"profiler in this process, so this recorder steps aside: read that tool's recording, or run without it",
	40: "the hypervisor does not allow this GPU to be traced: its administrator can allow it",
	41: "a GPU in confidential computing mode cannot be traced: use one that is not",
	42: "this device cannot be traced: use another GPU",
	43: "a GPU divided by MIG cannot be traced: use a whole GPU",
	44: "GPUs linked by SLI cannot be traced: use another GPU",
	45: "a GPU under WSL cannot be traced with this driver: use Linux itself, or a newer driver",
}
