package cuda

// #include "shim.h"
// #cgo noescape call_gs_stamps_into
// #cgo nocallback call_gs_stamps_into
// #cgo noescape call_gs_stamps_used
// #cgo nocallback call_gs_stamps_used
// #cgo noescape call_gs_stamps_collect
// #cgo nocallback call_gs_stamps_collect
import "C"

import (
	"time"
	"unsafe"
)

// StampArea is the size, in bytes, of the area in which a kernel stamps: see abi.h.
const StampArea = C.GS_STAMP_AREA

// StampPair is the size, in bytes, of what [Stream.CollectStamps] writes for each kernel: start and end, %globaltimer
// nanoseconds, two uint64.
const StampPair = 16

// StampInto makes each kernel of the library that is launched from now on, or captured, take the next of count areas of
// [StampArea] bytes, which were zeroed once: it will write there when its blocks started and ended. Areas 0 ends that.
// Kernels of NVIDIA's libraries take none.
func (s *Stream) StampInto(areas Ptr, count int) error {
	if areas != 0 && (count < 1 || count > maxRows) {
		return shapeError("StampInto", "%d areas; it must be at least 1", count)
	}
	return failed(C.call_gs_stamps_into(s.raw(), C.gs_ptr(areas), C.uint32_t(count)))
}

// Stamped returns how many areas kernels have needed since [Stream.StampInto]; it is more than there are if some
// kernels got none.
func (s *Stream) Stamped() (int, error) {
	var used C.uint32_t
	err := failed(C.call_gs_stamps_used(s.raw(), &used))
	return int(used), err
}

// StampedBy returns the name of the kernel that took an area, such as "gemv", and the number of its blocks; "" where
// none did.
func (s *Stream) StampedBy(area int) (name string, blocks int, err error) {
	var p *C.char
	var n C.uint32_t
	err = failed(C.call_gs_stamp_taken_by(s.raw(), C.uint32_t(area), &p, &n))
	if p == nil {
		return "", 0, err
	}
	return C.GoString(p), int(n), err
}

// Mark launches a kernel that does nothing but stamp.
func (s *Stream) Mark() error {
	return failed(C.call_gs_stamp_mark(s.raw()))
}

// CollectArgs are gs_collect_args.
type CollectArgs struct {
	size   uint32
	Count  uint32 // areas
	Rows   uint32 // passes for which Ring has room
	Areas  Ptr
	Blocks Ptr // (Count) uint32: of the kernels that took the areas
	Ring   Ptr // (Rows, Count) pairs of StampPair bytes
	Passes Ptr // (Count) uint64: collected so far, also those for which there was no row
}

// CollectStamps launches what turns the areas of a pass into a row of the ring: the least start and the greatest end of
// each kernel.
func (s *Stream) CollectStamps(a CollectArgs) error {
	if a.Count < 1 || a.Rows < 1 || a.Areas == 0 || a.Blocks == 0 || a.Ring == 0 || a.Passes == 0 {
		return shapeError("CollectStamps",
			"%d areas, %d rows; both must be at least 1, and Areas, Blocks, Ring and Passes be given", a.Count, a.Rows)
	}
	return failed(C.call_gs_stamps_collect(s.raw(), (*C.gs_collect_args)(unsafe.Pointer(&a))))
}

// ClockPair is a moment by two clocks.
type ClockPair struct {
	Host        int64         // CLOCK_MONOTONIC, ns
	Device      int64         // %globaltimer, ns
	Uncertainty time.Duration // by how much they may be apart
}

// CompareClocks waits for the stream, then reads both clocks, the device's in a kernel.
func (s *Stream) CompareClocks() (ClockPair, error) {
	mailbox, err := s.dev.AllocHost(64)
	if err != nil {
		return ClockPair{}, err
	}
	var p C.gs_clock_pair
	err = failed(C.call_gs_clock_compare(s.raw(), unsafe.Pointer(&mailbox.Bytes()[0]), C.gs_ptr(mailbox.Ptr()), &p))
	if freed := mailbox.Free(); err == nil {
		err = freed
	}
	return ClockPair{int64(p.host), int64(p.device), time.Duration(p.uncertainty)}, err
}
