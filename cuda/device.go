package cuda

// #include "table.h"
import "C"

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"
)

// Device is a GPU.
type Device struct {
	lib   *Library
	index int
	info  DeviceInfo
}

// DeviceInfo is what CUDA says of a device. Clocks are the highest ones, in kHz,
// sizes in bytes.
type DeviceInfo struct {
	Name                         string
	Major, Minor                 int // compute capability
	Processors                   int // streaming multiprocessors (SMs)
	ThreadsPerSM, BlocksPerSM    int
	RegistersPerSM               int
	SharedPerSM, SharedPerBlock  int // per block: the most that a kernel can ask for
	ClockKHz, MemoryClockKHz     int
	MemoryBusBits, L2            int
	Memory                       uint64
	PCIDomain, PCIBus, PCIDevice int
}

// PCI returns the bus id, as NVML writes it: "00000000:01:00.0".
func (i DeviceInfo) PCI() string {
	return fmt.Sprintf("%08X:%02X:%02X.0", i.PCIDomain, i.PCIBus, i.PCIDevice)
}

// Device returns a GPU by its index. Its compute capability must be 8.0 or later.
func (l *Library) Device(index int) (*Device, error) {
	n, err := l.DeviceCount()
	switch {
	case err != nil:
		return nil, unavailable(NoDevice, "no CUDA device can be used: %v", err)
	case n == 0:
		return nil, unavailable(NoDevice, "there is no CUDA device")
	case index < 0 || index >= n:
		return nil, unavailable(NoDevice, "there is no CUDA device %d; there are %d, counted from 0", index, n)
	}
	var c C.gs_device_info
	c.size = C.uint32_t(unsafe.Sizeof(c))
	if err := check(fmt.Sprintf("device %d", index), C.call_gs_device_get(l.table, C.int(index), &c)); err != nil {
		return nil, err
	}
	d := &Device{lib: l, index: index, info: DeviceInfo{
		Name: C.GoString(&c.name[0]), Major: int(c.major), Minor: int(c.minor), Processors: int(c.processors),
		ThreadsPerSM: int(c.threads_per_processor), BlocksPerSM: int(c.blocks_per_processor), RegistersPerSM: int(c.registers_per_processor),
		SharedPerSM: int(c.shared_per_processor), SharedPerBlock: int(c.shared_per_block), ClockKHz: int(c.clock_khz), MemoryClockKHz: int(c.memory_clock_khz),
		MemoryBusBits: int(c.memory_bus_bits), L2: int(c.l2_bytes), Memory: uint64(c.memory_bytes),
		PCIDomain: int(c.pci_domain), PCIBus: int(c.pci_bus), PCIDevice: int(c.pci_device),
	}}
	if 10*d.info.Major+d.info.Minor < minimum {
		return nil, unavailable(OldDevice, "device %d, %s, has compute capability %d.%d; %d.%d or later is needed", index, d.info.Name, d.info.Major, d.info.Minor, minimum/10, minimum%10)
	}
	return d, nil
}

// Index returns the device's number.
func (d *Device) Index() int { return d.index }

// Info returns what CUDA says of the device.
func (d *Device) Info() DeviceInfo { return d.info }

// Library returns the library that the device was found with.
func (d *Device) Library() *Library { return d.lib }

// Memory returns the device's free and total memory, in bytes.
func (d *Device) Memory() (free, total uint64, err error) {
	var f, t C.uint64_t
	err = check("free memory", C.call_gs_device_memory(d.lib.table, C.int(d.index), &f, &t))
	return uint64(f), uint64(t), err
}

// Buffer is device memory. It may be used from several goroutines, but freed only
// when no stream uses it.
type Buffer struct {
	dev  *Device
	ptr  Ptr
	size int64
	free atomic.Bool
}

// Alloc allocates device memory. It is not cleared.
func (d *Device) Alloc(bytes int64) (*Buffer, error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("allocating %d bytes of device memory: the size must be positive", bytes)
	}
	var p C.gs_ptr
	if err := check("device memory", C.call_gs_alloc(d.lib.table, C.int(d.index), C.uint64_t(bytes), &p)); err != nil {
		return nil, err
	}
	return &Buffer{dev: d, ptr: Ptr(p), size: bytes}, nil
}

// Ptr returns the device address, 0 after Free.
func (b *Buffer) Ptr() Ptr {
	if b == nil || b.free.Load() {
		return 0
	}
	return b.ptr
}

// Size returns the bytes.
func (b *Buffer) Size() int64 { return b.size }

// Free frees the memory. Freeing twice, or nil, does nothing.
func (b *Buffer) Free() error {
	if b == nil || b.free.Swap(true) {
		return nil
	}
	return check("freeing device memory", C.call_gs_free(b.dev.lib.table, C.int(b.dev.index), C.gs_ptr(b.ptr)))
}

// span checks that n bytes from off lie in a piece of memory that is not freed.
func span(what string, freed bool, size, off, n int64) error {
	switch {
	case freed:
		return fmt.Errorf("%s: %w", what, ErrFreed)
	case off < 0 || n < 0 || off > size-n:
		return fmt.Errorf("%s: %d bytes from %d on are not all in %d", what, n, off, size)
	}
	return nil
}

// Write copies from host memory, and returns when it is done.
func (b *Buffer) Write(off int64, p []byte) error {
	if err := span("writing device memory", b.free.Load(), b.size, off, int64(len(p))); err != nil || len(p) == 0 {
		return err
	}
	return check("writing device memory", C.call_gs_copy_now(b.dev.lib.table, C.int(b.dev.index), C.uint64_t(b.ptr)+C.uint64_t(off),
		C.uint64_t(uintptr(unsafe.Pointer(&p[0]))), C.uint64_t(len(p)), C.GS_TO_DEVICE))
}

// Read copies to host memory, and returns when it is done. What streams do with the
// memory is not waited for.
func (b *Buffer) Read(off int64, p []byte) error {
	if err := span("reading device memory", b.free.Load(), b.size, off, int64(len(p))); err != nil || len(p) == 0 {
		return err
	}
	return check("reading device memory", C.call_gs_copy_now(b.dev.lib.table, C.int(b.dev.index),
		C.uint64_t(uintptr(unsafe.Pointer(&p[0]))), C.uint64_t(b.ptr)+C.uint64_t(off), C.uint64_t(len(p)), C.GS_TO_HOST))
}

// HostBuffer is pinned host memory, which copies need to be asynchronous. Kernels
// see it at Ptr.
type HostBuffer struct {
	dev  *Device
	host unsafe.Pointer
	ptr  Ptr
	size int64
	free atomic.Bool
}

// AllocHost allocates pinned host memory. It is not cleared.
func (d *Device) AllocHost(bytes int64) (*HostBuffer, error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("allocating %d bytes of pinned memory: the size must be positive", bytes)
	}
	h := &HostBuffer{dev: d, size: bytes}
	var p C.gs_ptr
	if err := check("pinned memory", C.call_gs_alloc_host(d.lib.table, C.int(d.index), C.uint64_t(bytes), &h.host, &p)); err != nil {
		return nil, err
	}
	h.ptr = Ptr(p)
	return h, nil
}

// Bytes returns the memory, nil after Free.
func (h *HostBuffer) Bytes() []byte {
	if h == nil || h.free.Load() {
		return nil
	}
	return unsafe.Slice((*byte)(h.host), h.size)
}

// Ptr returns the address at which kernels see the memory, 0 after Free.
func (h *HostBuffer) Ptr() Ptr {
	if h == nil || h.free.Load() {
		return 0
	}
	return h.ptr
}

// Size returns the bytes.
func (h *HostBuffer) Size() int64 { return h.size }

// Free frees the memory. Freeing twice, or nil, does nothing.
func (h *HostBuffer) Free() error {
	if h == nil || h.free.Swap(true) {
		return nil
	}
	return check("freeing pinned memory", C.call_gs_free_host(h.dev.lib.table, C.int(h.dev.index), h.host))
}

// Stream is an order of work on a device. It belongs to one goroutine at a time.
type Stream struct {
	dev   *Device
	table *C.gs_table
	h     *C.gs_stream // nil after Close
}

// NewStream makes a stream.
func (d *Device) NewStream() (*Stream, error) {
	s := &Stream{dev: d, table: d.lib.table}
	if err := check("stream", C.call_gs_stream_create(d.lib.table, C.int(d.index), &s.h)); err != nil {
		return nil, err
	}
	return s, nil
}

// Device returns the stream's device.
func (s *Stream) Device() *Device { return s.dev }

// use is the first thing that every use of a stream does.
func (s *Stream) use(what string) error {
	if s == nil || s.h == nil {
		return fmt.Errorf("%s: %w", what, ErrFreed)
	}
	return nil
}

// Close closes the stream. Closing twice, or nil, does nothing.
func (s *Stream) Close() error {
	if s == nil || s.h == nil {
		return nil
	}
	h := s.h
	s.h = nil
	return check("closing a stream", C.call_gs_stream_destroy(s.table, h))
}

// Synchronize waits until all work of the stream is done.
func (s *Stream) Synchronize() error {
	if err := s.use("synchronize"); err != nil {
		return err
	}
	return check("synchronize", C.call_gs_stream_synchronize(s.table, s.h))
}

// Query tells whether all work of the stream is done.
func (s *Stream) Query() (bool, error) {
	if err := s.use("query"); err != nil {
		return false, err
	}
	var done C.int
	err := check("query", C.call_gs_stream_query(s.table, s.h, &done))
	return done != 0, err
}

// Overlap says whether kernels may start while the one before them ends
// (programmatic dependent launch, from compute capability 9.0 on). They do by
// default.
func (s *Stream) Overlap(on bool) error {
	if err := s.use("overlap"); err != nil {
		return err
	}
	return check("overlap", C.call_gs_stream_overlap(s.table, s.h, flag(on)))
}

func flag(on bool) C.int {
	if on {
		return 1
	}
	return 0
}

// CopyToDevice copies n bytes from pinned host memory, asynchronously.
func (s *Stream) CopyToDevice(dst *Buffer, dstOff int64, src *HostBuffer, srcOff, n int64) error {
	return s.copy("copy to the device", uint64(dst.Ptr()), dst.Size(), dstOff, uint64(uintptr(src.host)), src.Size(), srcOff, n, dst.free.Load() || src.free.Load(), C.GS_TO_DEVICE)
}

// CopyToHost copies n bytes to pinned host memory, asynchronously.
func (s *Stream) CopyToHost(dst *HostBuffer, dstOff int64, src *Buffer, srcOff, n int64) error {
	return s.copy("copy to the host", uint64(uintptr(dst.host)), dst.Size(), dstOff, uint64(src.Ptr()), src.Size(), srcOff, n, dst.free.Load() || src.free.Load(), C.GS_TO_HOST)
}

// CopyOnDevice copies n bytes of device memory, asynchronously.
func (s *Stream) CopyOnDevice(dst *Buffer, dstOff int64, src *Buffer, srcOff, n int64) error {
	return s.copy("copy on the device", uint64(dst.Ptr()), dst.Size(), dstOff, uint64(src.Ptr()), src.Size(), srcOff, n, dst.free.Load() || src.free.Load(), C.GS_ON_DEVICE)
}

func (s *Stream) copy(what string, dst uint64, dstSize, dstOff int64, src uint64, srcSize, srcOff, n int64, freed bool, direction C.int) error {
	if err := s.use(what); err != nil {
		return err
	}
	if err := span(what, freed, dstSize, dstOff, n); err != nil {
		return err
	}
	if err := span(what, freed, srcSize, srcOff, n); err != nil || n == 0 {
		return err
	}
	return check(what, C.call_gs_copy(s.table, s.h, C.uint64_t(dst)+C.uint64_t(dstOff), C.uint64_t(src)+C.uint64_t(srcOff), C.uint64_t(n), direction))
}

// Set fills n bytes of device memory, asynchronously.
func (s *Stream) Set(b *Buffer, off int64, value byte, n int64) error {
	if err := s.use("set"); err != nil {
		return err
	}
	if err := span("set", b.free.Load(), b.size, off, n); err != nil || n == 0 {
		return err
	}
	return check("set", C.call_gs_set(s.table, s.h, C.gs_ptr(b.ptr)+C.gs_ptr(off), C.int(value), C.uint64_t(n)))
}

// Event is a point in a stream's order.
type Event struct {
	dev *Device
	h   *C.gs_event // nil after Close
}

// NewEvent makes an event that knows its time.
func (d *Device) NewEvent() (*Event, error) {
	e := &Event{dev: d}
	if err := check("event", C.call_gs_event_create(d.lib.table, C.int(d.index), 1, &e.h)); err != nil {
		return nil, err
	}
	return e, nil
}

func (e *Event) use(what string) error {
	if e == nil || e.h == nil {
		return fmt.Errorf("%s: %w", what, ErrFreed)
	}
	return nil
}

// Close closes the event. Closing twice, or nil, does nothing.
func (e *Event) Close() error {
	if e == nil || e.h == nil {
		return nil
	}
	h := e.h
	e.h = nil
	return check("closing an event", C.call_gs_event_destroy(e.dev.lib.table, h))
}

// Record puts an event after all work given to the stream so far.
func (s *Stream) Record(e *Event) error {
	if err := s.use("record"); err != nil {
		return err
	}
	if err := e.use("record"); err != nil {
		return err
	}
	return check("record", C.call_gs_event_record(s.table, e.h, s.h))
}

// Wait makes what the stream is given from now on wait for an event.
func (s *Stream) Wait(e *Event) error {
	if err := s.use("wait"); err != nil {
		return err
	}
	if err := e.use("wait"); err != nil {
		return err
	}
	return check("wait", C.call_gs_stream_wait(s.table, s.h, e.h))
}

// Synchronize waits for the event.
func (e *Event) Synchronize() error {
	if err := e.use("synchronize"); err != nil {
		return err
	}
	return check("synchronize", C.call_gs_event_synchronize(e.dev.lib.table, e.h))
}

// Query tells whether the event was reached.
func (e *Event) Query() (bool, error) {
	if err := e.use("query"); err != nil {
		return false, err
	}
	var done C.int
	err := check("query", C.call_gs_event_query(e.dev.lib.table, e.h, &done))
	return done != 0, err
}

// Since returns the device's time between two events that were reached.
func (e *Event) Since(start *Event) (time.Duration, error) {
	if err := e.use("elapsed"); err != nil {
		return 0, err
	}
	if err := start.use("elapsed"); err != nil {
		return 0, err
	}
	var ms C.float
	err := check("elapsed", C.call_gs_event_elapsed(e.dev.lib.table, start.h, e.h, &ms))
	return time.Duration(float64(ms) * float64(time.Millisecond)), err
}

// Graph is recorded work, launched as one.
type Graph struct {
	dev *Device
	h   *C.gs_graph // nil after Free
}

// Capture records what f launches on the stream; it does not run. What f launches
// must come from the calling OS thread: callers lock it (runtime.LockOSThread).
func (s *Stream) Capture(f func() error) (*Graph, error) {
	if err := s.use("capture"); err != nil {
		return nil, err
	}
	if err := check("capture", C.call_gs_capture_begin(s.table, s.h)); err != nil {
		return nil, err
	}
	if err := f(); err != nil {
		check("capture", C.call_gs_capture_abandon(s.table, s.h))
		return nil, err
	}
	g := &Graph{dev: s.dev}
	if err := check("capture", C.call_gs_capture_end(s.table, s.h, &g.h)); err != nil {
		return nil, err
	}
	return g, nil
}

// Launch runs the graph on a stream.
func (g *Graph) Launch(s *Stream) error {
	if g == nil || g.h == nil {
		return fmt.Errorf("graph: %w", ErrFreed)
	}
	if err := s.use("graph"); err != nil {
		return err
	}
	return check("graph", C.call_gs_graph_launch(s.table, g.h, s.h))
}

// Nodes returns how many nodes (kernels, copies) the graph has.
func (g *Graph) Nodes() (int, error) {
	if g == nil || g.h == nil {
		return 0, fmt.Errorf("graph: %w", ErrFreed)
	}
	var n C.uint64_t
	err := check("graph", C.call_gs_graph_nodes(g.dev.lib.table, g.h, &n))
	return int(n), err
}

// Free frees the graph. Freeing twice, or nil, does nothing.
func (g *Graph) Free() error {
	if g == nil || g.h == nil {
		return nil
	}
	h := g.h
	g.h = nil
	return check("freeing a graph", C.call_gs_graph_destroy(g.dev.lib.table, h))
}
