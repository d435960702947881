package cuda

// #include "shim.h"
// #cgo noescape call_gs_copy
// #cgo nocallback call_gs_copy
// #cgo noescape call_gs_graph_launch
// #cgo nocallback call_gs_graph_launch
// #cgo noescape call_gs_stream_query
// #cgo nocallback call_gs_stream_query
import "C"

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"
)

// Stream is a queue of work on a device.
type Stream struct {
	dev *Device
	c   atomic.Pointer[C.gs_stream] // nil once closed
}

// NewStream makes a stream.
func (d *Device) NewStream() (*Stream, error) {
	var c *C.gs_stream
	if err := failed(C.call_gs_stream_create(d.lib.table, d.index, &c)); err != nil {
		return nil, err
	}
	s := &Stream{dev: d}
	s.c.Store(c)
	return s, nil
}

// Device returns the stream's device.
func (s *Stream) Device() *Device { return s.dev }

// Close frees the stream. Again, it does nothing.
func (s *Stream) Close() error {
	return release(&s.c, func(c *C.gs_stream) C.gs_result { return C.call_gs_stream_destroy(s.dev.lib.table, c) })
}

// raw returns what C knows the library and the stream by: NULL once closed, at which every call fails.
func (s *Stream) raw() C.gs_on { return C.gs_on{s.dev.lib.table, s.c.Load()} }

// Synchronize waits until all work of the stream is done.
func (s *Stream) Synchronize() error {
	return failed(C.call_gs_stream_synchronize(s.raw()))
}

// Query reports whether all work of the stream is done.
func (s *Stream) Query() (bool, error) {
	var done C.int
	err := failed(C.call_gs_stream_query(s.raw(), &done))
	return done != 0, err
}

// NoOverlap makes kernels wait until the one before them has ended. Without it they may start while that ends, where the
// device can (compute capability 9.0).
func (s *Stream) NoOverlap() error {
	return failed(C.call_gs_stream_overlap(s.raw(), 0))
}

// CopyToDevice copies n bytes of pinned memory to the device, in the stream's order.
func (s *Stream) CopyToDevice(dst *Buffer, dstOff int64, src *HostBuffer, srcOff, n int64) error {
	return s.copy("CopyToDevice", dst, dstOff, src, srcOff, n, C.GS_TO_DEVICE)
}

// CopyToHost copies n bytes of the device to pinned memory, in the stream's order.
func (s *Stream) CopyToHost(dst *HostBuffer, dstOff int64, src *Buffer, srcOff, n int64) error {
	return s.copy("CopyToHost", dst, dstOff, src, srcOff, n, C.GS_TO_HOST)
}

// CopyOnDevice copies n bytes within the device, in the stream's order.
func (s *Stream) CopyOnDevice(dst *Buffer, dstOff int64, src *Buffer, srcOff, n int64) error {
	return s.copy("CopyOnDevice", dst, dstOff, src, srcOff, n, C.GS_ON_DEVICE)
}

// Write copies p, which is not pinned, to the device in the stream's order. CUDA copies p to pinned memory of its own,
// and most often returns only after that. p must not be Go memory, and must stay as it is until the copy is done.
func (s *Stream) Write(dst *Buffer, off int64, p []byte) error {
	to, err := dst.at("Write", off, int64(len(p)))
	if err != nil || len(p) == 0 {
		return err
	}
	return failed(C.call_write_async(s.raw(), to, unsafe.Pointer(&p[0]), C.uint64_t(len(p))))
}

// Read copies from the device to p, which is not pinned, in the stream's order. Most often it returns only when that is
// done. p must not be Go memory.
func (s *Stream) Read(src *Buffer, off int64, p []byte) error {
	from, err := src.at("Read", off, int64(len(p)))
	if err != nil || len(p) == 0 {
		return err
	}
	return failed(C.call_read_async(s.raw(), unsafe.Pointer(&p[0]), from, C.uint64_t(len(p))))
}

// memory is a Buffer or a HostBuffer.
type memory interface {
	at(op string, off, n int64) (C.uint64_t, error)
}

func (s *Stream) copy(op string, dst memory, dstOff int64, src memory, srcOff, n int64, direction C.int) error {
	to, err := dst.at(op, dstOff, n)
	if err != nil {
		return err
	}
	from, err := src.at(op, srcOff, n)
	if err != nil {
		return err
	}
	for _, m := range []memory{dst, src} {
		if b, is := m.(*Buffer); is && b.dev.index != s.dev.index { // pinned memory is that of all GPUs
			return &ShapeError{op, fmt.Sprintf("memory of GPU %d on a stream of GPU %d", b.dev.index, s.dev.index)}
		}
	}
	if n == 0 {
		return nil
	}
	return failed(C.call_gs_copy(s.raw(), to, from, C.uint64_t(n), direction))
}

// Set sets n bytes from off on to a value, in the stream's order.
func (s *Stream) Set(b *Buffer, off int64, value byte, n int64) error {
	p, err := b.at("Set", off, n)
	if err != nil || n == 0 {
		return err
	}
	return failed(C.call_gs_set(s.raw(), p, C.int(value), C.uint64_t(n)))
}

// Event is a point in a stream's work.
type Event struct {
	dev *Device
	c   atomic.Pointer[C.gs_event] // nil once closed
}

// NewEvent makes an event that can be timed.
func (d *Device) NewEvent() (*Event, error) {
	var c *C.gs_event
	if err := failed(C.call_gs_event_create(d.lib.table, d.index, &c)); err != nil {
		return nil, err
	}
	e := &Event{dev: d}
	e.c.Store(c)
	return e, nil
}

// Close frees the event. Again, it does nothing.
func (e *Event) Close() error {
	return release(&e.c, func(c *C.gs_event) C.gs_result { return C.call_gs_event_destroy(e.dev.lib.table, c) })
}

// Record puts the event after what was launched on the stream so far.
func (s *Stream) Record(e *Event) error {
	return failed(C.call_gs_event_record(s.raw(), e.c.Load()))
}

// Wait makes what is launched on the stream from now on wait for the event.
func (s *Stream) Wait(e *Event) error {
	return failed(C.call_gs_stream_wait(s.raw(), e.c.Load()))
}

// Synchronize waits until the event has happened.
func (e *Event) Synchronize() error {
	return failed(C.call_gs_event_synchronize(e.dev.lib.table, e.c.Load()))
}

// Since returns the time on the device between two events that have happened.
func (e *Event) Since(start *Event) (time.Duration, error) {
	var ms C.float
	err := failed(C.call_gs_event_elapsed(e.dev.lib.table, start.c.Load(), e.c.Load(), &ms))
	return time.Duration(float64(ms) * float64(time.Millisecond)), err
}

// Graph is captured work, ready to be replayed.
type Graph struct {
	dev *Device
	c   atomic.Pointer[C.gs_graph] // nil once freed
}

// Capture puts what f launches on the stream into a graph, and runs none of it. If f fails, or panics, the graph is
// dropped. f must launch from the goroutine that calls it, and must not wait for the stream.
func (s *Stream) Capture(f func() error) (*Graph, error) {
	o := s.raw()
	runtime.LockOSThread() // a capture belongs to the thread
	defer runtime.UnlockOSThread()
	if err := failed(C.call_gs_capture_begin(o)); err != nil {
		return nil, err
	}
	ended := false
	defer func() {
		if !ended {
			_ = failed(C.call_gs_capture_abandon(o)) // f's failure is the cause
		}
	}()
	if err := f(); err != nil {
		return nil, err
	}
	ended = true
	var out *C.gs_graph
	if err := failed(C.call_gs_capture_end(o, &out)); err != nil {
		return nil, err
	}
	g := &Graph{dev: s.dev}
	g.c.Store(out)
	return g, nil
}

// Launch replays the graph on a stream of its device.
func (g *Graph) Launch(s *Stream) error {
	return failed(C.call_gs_graph_launch(s.raw(), g.c.Load()))
}

// Free frees the graph. Again, it does nothing.
func (g *Graph) Free() error {
	return release(&g.c, func(c *C.gs_graph) C.gs_result { return C.call_gs_graph_destroy(g.dev.lib.table, c) })
}
