package cuda

// #include "shim.h"
import "C"

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// DeviceInfo is what CUDA reports of a GPU.
type DeviceInfo struct {
	Index               int
	Name                string
	Major, Minor        int // compute capability
	Processors          int // streaming multiprocessors
	ThreadsPerProcessor int
	BlocksPerProcessor  int
	RegistersPerProc    int
	SharedPerProcessor  int // bytes
	SharedPerBlock      int // bytes, at most
	ClockKHz            int // highest
	MemoryClockKHz      int // highest
	MemoryBusBits       int
	L2Bytes             int
	PCI                 string // "0000:19:00.0"
	MemoryBytes         uint64
}

// Device is one GPU.
type Device struct {
	lib   *Library
	index C.int
	info  DeviceInfo
}

// Device returns the i-th GPU. An error is an *UnavailableError where there is none or it is older than compute
// capability 7.5.
func (l *Library) Device(i int) (*Device, error) {
	n, err := l.DeviceCount()
	if err != nil {
		return nil, err
	}
	if i < 0 || i >= n {
		switch n {
		case 0:
			return nil, unavailable(nil, "there is no GPU %d: CUDA sees none", i)
		case 1:
			return nil, unavailable(nil, "there is no GPU %d: there is 1, numbered 0", i)
		}
		return nil, unavailable(nil, "there is no GPU %d: there are %d, numbered 0 to %d", i, n, n-1)
	}
	var c C.gs_device_info
	c.size = C.uint32_t(unsafe.Sizeof(c))
	if err := failed(C.call_gs_device_get(l.table, C.int(i), &c)); err != nil {
		return nil, err
	}
	info := DeviceInfo{
		Index: i, Name: C.GoString(&c.name[0]), Major: int(c.major), Minor: int(c.minor), Processors: int(c.processors),
		ThreadsPerProcessor: int(c.threads_per_processor), BlocksPerProcessor: int(c.blocks_per_processor),
		RegistersPerProc: int(c.registers_per_processor), SharedPerProcessor: int(c.shared_per_processor),
		SharedPerBlock: int(c.shared_per_block), ClockKHz: int(c.clock_khz), MemoryClockKHz: int(c.memory_clock_khz),
		MemoryBusBits: int(c.memory_bus_bits), L2Bytes: int(c.l2_bytes), MemoryBytes: uint64(c.memory_bytes),
		PCI: fmt.Sprintf("%04x:%02x:%02x.0", int(c.pci_domain), int(c.pci_bus), int(c.pci_device)),
	}
	if 10*info.Major+info.Minor < 75 {
		return nil, unavailable(nil, "GPU %d (%s) has compute capability %d.%d; 7.5 or later is needed", i,
			info.Name, info.Major, info.Minor)
	}
	return &Device{l, C.int(i), info}, nil
}

// Library returns the library that the device belongs to.
func (d *Device) Library() *Library { return d.lib }

// Info returns what CUDA reports of the device.
func (d *Device) Info() DeviceInfo { return d.info }

// Memory returns the device's free and total memory in bytes.
func (d *Device) Memory() (free, total uint64, err error) {
	var f, t C.uint64_t
	err = failed(C.call_gs_device_memory(d.lib.table, d.index, &f, &t))
	return uint64(f), uint64(t), err
}

// Buffer is memory on a device.
type Buffer struct {
	dev  *Device
	ptr  atomic.Uint64 // 0 once freed
	size int64
}

// Align rounds bytes up to what CUDA's own allocations are aligned to.
func Align(n int64) int64 { return (n + 255) / 256 * 256 }

// Alloc allocates device memory, which is not cleared.
func (d *Device) Alloc(bytes int64) (*Buffer, error) {
	if bytes <= 0 {
		return nil, &ShapeError{"Alloc", fmt.Sprintf("%d bytes; it must be at least 1", bytes)}
	}
	var p C.gs_ptr
	if err := failed(C.call_gs_alloc(d.lib.table, d.index, C.uint64_t(bytes), &p)); err != nil {
		return nil, fmt.Errorf("cannot allocate %d bytes on GPU %d: %w", bytes, d.info.Index, err)
	}
	b := &Buffer{dev: d, size: bytes}
	b.ptr.Store(uint64(p))
	return b, nil
}

// Ptr returns the address, 0 once freed.
func (b *Buffer) Ptr() Ptr { return Ptr(b.ptr.Load()) }

// Size returns the size in bytes.
func (b *Buffer) Size() int64 { return b.size }

// Free frees the memory. It waits for the device. Again, it does nothing.
func (b *Buffer) Free() error {
	p := b.ptr.Swap(0)
	if p == 0 {
		return nil
	}
	return failed(C.call_gs_free(b.dev.lib.table, b.dev.index, C.gs_ptr(p)))
}

// at returns the address of n bytes from an offset on.
func (b *Buffer) at(op string, off, n int64) (C.uint64_t, error) {
	p := b.ptr.Load()
	if p == 0 {
		return 0, fmt.Errorf("%s: a buffer of GPU %d: %w", op, b.dev.info.Index, ErrFreed)
	}
	if err := within(op, off, n, b.size); err != nil {
		return 0, err
	}
	return C.uint64_t(p + uint64(off)), nil
}

func within(op string, off, n, size int64) error {
	if off < 0 || n < 0 || off > size || n > size-off {
		return &ShapeError{op, fmt.Sprintf("%d bytes from %d on do not lie within a buffer of %d", n, off, size)}
	}
	return nil
}

// Write copies p to the device and ends when that is done.
func (b *Buffer) Write(off int64, p []byte) error {
	dst, err := b.at("Write", off, int64(len(p)))
	if err != nil || len(p) == 0 {
		return err
	}
	return failed(C.call_write(b.dev.lib.table, b.dev.index, dst, unsafe.Pointer(&p[0]), C.uint64_t(len(p))))
}

// Read copies from the device to p and ends when that is done.
func (b *Buffer) Read(off int64, p []byte) error {
	src, err := b.at("Read", off, int64(len(p)))
	if err != nil || len(p) == 0 {
		return err
	}
	return failed(C.call_read(b.dev.lib.table, b.dev.index, unsafe.Pointer(&p[0]), src, C.uint64_t(len(p))))
}

// release frees an object of C, the first time.
func release[T any](c *atomic.Pointer[T], free func(*T) C.gs_result) error {
	if p := c.Swap(nil); p != nil {
		return failed(free(p))
	}
	return nil
}

// HostBuffer is pinned host memory: the device copies from and to it by itself, and kernels can read and write it. The
// garbage collector does not know it.
type HostBuffer struct {
	dev  *Device
	host atomic.Pointer[byte] // nil once freed
	ptr  Ptr
	size int64
}

// AllocHost allocates pinned host memory, which is not cleared. Streams of all GPUs can copy to it and from it.
func (d *Device) AllocHost(bytes int64) (*HostBuffer, error) {
	if bytes <= 0 {
		return nil, &ShapeError{"AllocHost", fmt.Sprintf("%d bytes; it must be at least 1", bytes)}
	}
	var p unsafe.Pointer
	var address C.gs_ptr
	if err := failed(C.call_gs_alloc_host(d.lib.table, d.index, C.uint64_t(bytes), &p, &address)); err != nil {
		return nil, fmt.Errorf("cannot allocate %d bytes of pinned memory: %w", bytes, err)
	}
	h := &HostBuffer{dev: d, ptr: Ptr(address), size: bytes}
	h.host.Store((*byte)(p))
	return h, nil
}

// Bytes returns the memory, nil once freed. It must not be used after Free.
func (h *HostBuffer) Bytes() []byte {
	p := h.host.Load()
	if p == nil {
		return nil
	}
	return unsafe.Slice(p, h.size)
}

// Ptr returns the address under which kernels see the memory, 0 once freed.
func (h *HostBuffer) Ptr() Ptr {
	if h.host.Load() == nil {
		return 0
	}
	return h.ptr
}

// Free frees the memory. Again, it does nothing.
func (h *HostBuffer) Free() error {
	return release(&h.host, func(p *byte) C.gs_result {
		return C.call_gs_free_host(h.dev.lib.table, h.dev.index, unsafe.Pointer(p))
	})
}

func (h *HostBuffer) at(op string, off, n int64) (C.uint64_t, error) {
	p := h.host.Load()
	if p == nil {
		return 0, fmt.Errorf("%s: a host buffer: %w", op, ErrFreed)
	}
	if err := within(op, off, n, h.size); err != nil {
		return 0, err
	}
	return C.uint64_t(uintptr(unsafe.Pointer(p)) + uintptr(off)), nil
}
