package cupti

/*
#include <stdlib.h>
#include "recorder.h"

// Go cannot call through a pointer to a function.
static int32_t t_open(const gs_cupti_table *t, const char *paths, const gs_cupti_options *o, gs_cupti_error *e) {
  return t->open(paths, o, e);
}
static int32_t t_start(const gs_cupti_table *t, gs_cupti_error *e) { return t->start(e); }
static int32_t t_stop(const gs_cupti_table *t, gs_cupti_error *e) { return t->stop(e); }
static int32_t t_flush(const gs_cupti_table *t, int32_t forced, gs_cupti_error *e) { return t->flush(forced, e); }
static int32_t t_close(const gs_cupti_table *t, gs_cupti_error *e) { return t->close(e); }
static void t_push(const gs_cupti_table *t, uint64_t tag) { t->push(tag); }
static void t_pop(const gs_cupti_table *t) { t->pop(); }
static int32_t t_drain(const gs_cupti_table *t, gs_cupti_record *r, int32_t max) { return t->drain(r, max); }
static void t_losses(const gs_cupti_table *t, gs_cupti_losses *l) { t->losses(l); }
static void t_state(const gs_cupti_table *t, gs_cupti_state *s) { t->state(s); }
static int32_t t_clock(const gs_cupti_table *t, gs_cupti_clock *c, gs_cupti_error *e) { return t->clock(c, e); }
*/
import "C"

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"sync"
	"unsafe"

	"gpt2scope/nvtx"
	"gpt2scope/traces"
)

// Options bound the memory that recording takes.
type Options struct {
	BufferSize int // bytes of an activity buffer; 0 is 4 MiB. A kernel takes about 220
	Buffers    int // at most, made when they are needed; 0 is 128: 2 million kernels. When all are full, records are lost
	Nodes      int // graph nodes that wait to be read, at most; 0 is 65536
}

func (o Options) c() (c C.gs_cupti_options) {
	for k := KindKernel; k <= KindNode; k++ {
		c.kinds |= 1 << k
	}
	c.buffer_size, c.buffers = C.uint64_t(cmp.Or(o.BufferSize, 4<<20)), C.uint32_t(cmp.Or(o.Buffers, 128))
	c.nodes, c.ready = C.uint32_t(cmp.Or(o.Nodes, 1<<16)), min(4, c.buffers)
	// Of CUPTI's buffers on the device, a context begins with so many; the thread that launches has to make any more.
	c.device_buffer, c.device_buffers = 8<<20, 4 // a million kernels in flight
	return c
}

// Recorder records. Its methods may be called from several goroutines, Push and Pop from locked OS threads.
type Recorder struct {
	table *C.gs_cupti_table

	mutex    sync.Mutex        // guards what follows, and calls of the library except push and pop
	names    map[string]string // of kernels and calls
	timeless int64             // records without times
}

// Open finds the libraries and subscribes to CUPTI. Graph nodes are recorded from here on, all else from Start on. See
// Order of calls in the package's documentation.
func Open(o Options) (*Recorder, error) {
	if tool := nvtx.Tool(); tool != "" {
		return nil, failure(
			"a profiler is attached (%s is set) and CUPTI has one subscriber, so the cupti recorder steps aside: "+
				"read that profiler's recording, or run without it", tool)
	}
	table, err := openTable()
	if err != nil {
		return nil, err
	}
	r := &Recorder{table: table, names: map[string]string{}}
	paths, options := C.CString(cuptiPaths()), o.c()
	defer C.free(unsafe.Pointer(paths))
	err = r.do("CUPTI cannot be used", func(e *C.gs_cupti_error) C.int32_t { return C.t_open(table, paths, &options, e) })
	if err != nil {
		return nil, err
	}
	return r, nil
}

// explain makes an error of a call of CUPTI that failed.
func explain(what string, e *C.gs_cupti_error) error {
	code, call, text := int(e.code), C.GoString(&e.call[0]), C.GoString(&e.text[0])
	known, ok := results[code]
	switch {
	case ok && code == busyCode && text != "":
		return unavailable(what + " (its subscriber is " + text + "): " + known)
	case ok:
		return unavailable(what + ": " + known)
	case call == "" && text != "":
		return failure("CUPTI cannot be opened: %s; %s names another one", text, CUPTIEnv)
	case call == "":
		return failure("there is no libcupti, which comes with the CUDA toolkit and the wheel nvidia-cuda-cupti, in CUDA_HOME "+
			"(%q), beside the program, where the loader looks, in /usr/local/cuda or the packages of pip; name it by %s",
			os.Getenv("CUDA_HOME"), CUPTIEnv)
	case call == "cuptiSubscribe": // it returns 999 then
		text += ", as where there is no NVIDIA driver"
	}
	if e.kind != 0 {
		call += fmt.Sprintf(" for %v", Kind(e.kind))
	}
	if code != 0 {
		text += fmt.Sprintf(" (%d)", code)
	}
	return fmt.Errorf("%s: %s failed: %s", what, call, text)
}

// do calls the library.
func (r *Recorder) do(what string, f func(e *C.gs_cupti_error) C.int32_t) error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	var e C.gs_cupti_error
	if f(&e) != 0 {
		return explain(what, &e)
	}
	return nil
}

// Start begins to record.
func (r *Recorder) Start() error {
	return r.do("recording by CUPTI cannot begin", func(e *C.gs_cupti_error) C.int32_t { return C.t_start(r.table, e) })
}

// Stop ends recording, with a forced flush: records of work that is still running then have no times, so synchronise
// first. Records can be read until Close, and recording can start again.
func (r *Recorder) Stop() error {
	return r.do("recording by CUPTI cannot end", func(e *C.gs_cupti_error) C.int32_t { return C.t_stop(r.table, e) })
}

// Flush makes CUPTI deliver the records of buffers in which all work has ended, or, with forced, of all buffers. It
// does not wait for the device, so synchronise first. It takes about a millisecond: call it between passes.
func (r *Recorder) Flush(forced bool) error {
	f := C.int32_t(0)
	if forced {
		f = 1
	}
	return r.do("CUPTI cannot give out its records", func(e *C.gs_cupti_error) C.int32_t {
		return C.t_flush(r.table, f, e)
	})
}

// Close stops recording and unsubscribes. Records that were not read are lost. CUPTI itself stays in the process and
// goes on slowing it: removing it (cuptiFinalize) is safe only inside a CUDA call.
func (r *Recorder) Close() error {
	return r.do("CUPTI cannot be closed", func(e *C.gs_cupti_error) C.int32_t { return C.t_close(r.table, e) })
}

// Push puts a tag on what this OS thread calls, and on the graph nodes that it makes, until Pop. The goroutine must be
// locked to its thread. Pushes nest, up to 32 deep.
func (r *Recorder) Push(tag uint64) { C.t_push(r.table, C.uint64_t(tag)) }

// Pop removes the tag that this OS thread pushed last.
func (r *Recorder) Pop() { C.t_pop(r.table) }

// Records returns the records that CUPTI has delivered since the last call, in no order: sort them by Start when all are
// read. Full buffers can be read without a Flush; a long recording reads them between passes, before all buffers are
// full.
func (r *Recorder) Records() (list []Record) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	batch := make([]C.gs_cupti_record, 512)
	for {
		n := C.t_drain(r.table, &batch[0], C.int32_t(len(batch)))
		if n == 0 {
			return list
		}
		for i := range batch[:n] {
			c := &batch[i]
			text := unsafe.Slice((*byte)(unsafe.Pointer(c.name)), int(c.name_length))
			name, ok := r.names[string(text)] // no copy is made to look it up
			if !ok {
				name = string(text)
				r.names[name] = name
			}
			record := read(c, name)
			if record.timeless() {
				r.timeless++
			}
			list = append(list, record)
		}
	}
}

// read converts a record of the library that has a name.
func read(c *C.gs_cupti_record, name string) Record {
	record := Record{
		Kind: Kind(c.kind), Name: name, Start: int64(c.start), End: int64(c.end),
		Device: uint32(c.device), Context: uint32(c.context), Stream: uint32(c.stream),
		Correlation: uint64(c.correlation), External: uint64(c.tag), Tagged: c.tagged != 0,
		Node: uint64(c.node), Origin: uint64(c.origin),
		Grid:      [3]int32{int32(c.grid[0]), int32(c.grid[1]), int32(c.grid[2])},
		Block:     [3]int32{int32(c.block[0]), int32(c.block[1]), int32(c.block[2])},
		Registers: uint32(c.registers), StaticShared: int32(c.static_shared), DynamicShared: int32(c.dynamic_shared),
		Bytes: uint64(c.bytes), CopyKind: uint8(c.copy_kind), From: uint8(c.from), To: uint8(c.to),
		Process: uint32(c.process), Thread: uint32(c.thread), Detail: uint32(c.detail),
	}
	if (record.Kind == KindRuntime || record.Kind == KindDriver) && name == "" {
		record.Name = fmt.Sprintf("call %d", record.Detail)
	}
	return record
}

// timeless reports whether a record should have times and has none: CUPTI had no room on the device for them, or the
// work was still running when a flush was forced.
func (r *Record) timeless() bool {
	return (r.Kind < KindExternal || r.Kind == KindGraph) && (r.Start == 0 || r.End < r.Start)
}

// What is dropped, as a trace's header counts it.
const (
	DroppedRecords  = "activity records"               // CUPTI had no buffer for them
	DroppedNodes    = "graph nodes"                    // there was no room for them
	DroppedTimes    = "records of work without times"  // no room on the device, or the work had not ended
	DroppedBuffers  = "ends of activity buffers"       // they could not be read
	DroppedPushes   = "tags that were nested too deep" //
	DroppedByCUPTI  = "all after CUPTI's fatal error"  // CUPTI detached itself
	maxFollowedNode = 100                              // clones of clones
)

// Describe writes to a trace's header what this recorder is, and what it lost. Call it when all records have been read,
// with a reading of the clocks.
func (r *Recorder) Describe(h *traces.Header, at Clock) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	var s C.gs_cupti_state
	var l C.gs_cupti_losses
	C.t_state(r.table, &s)
	C.t_losses(r.table, &l)
	describe(h, at.Uncertainty, &s, &l, r.timeless)
}

func describe(h *traces.Header, uncertainty int64, s *C.gs_cupti_state, l *C.gs_cupti_losses, timeless int64) {
	h.Recorder, h.Clock = traces.RecorderCUPTI, traces.Clock{Domain: "cupti", Uncertainty: uncertainty}
	if h.Versions = maps.Clone(h.Versions); h.Versions == nil {
		h.Versions = map[string]string{}
	}
	if s.version != 0 {
		h.Versions["CUPTI"] = version(uint32(s.version), uint32(s.known))
	}
	for k := KindKernel; k < numKinds; k++ {
		if s.refused>>k&1 != 0 {
			h.NotRecorded = append(h.NotRecorded, fmt.Sprintf("%v: CUPTI refuses to record them", k))
		}
	}
	lost := map[string]int64{DroppedRecords: int64(l.records), DroppedNodes: int64(l.nodes), DroppedTimes: timeless,
		DroppedBuffers: int64(l.damaged), DroppedPushes: int64(l.pushes), DroppedByCUPTI: int64(min(1, uint32(s.fatal)))}
	for what, n := range lost {
		if n > 0 {
			h.Drop(what, n)
		}
	}
}

// version is for people: cuptiGetVersion is 28 in CUDA 12.9, 130001 in CUDA 13.0. Records of a version newer than the
// one that the recorder was built for are read all the same, since structs grow at their end.
func version(n, known uint32) string {
	name := fmt.Sprintf("CUPTI version %d", n)
	if n >= 130000 {
		name = fmt.Sprintf("CUPTI %d.%d (%d)", n/10000, n/100%100, n)
	}
	if n/100 > known/100 || n < 130000 && n > known {
		name += fmt.Sprintf(", newer than the recorder, which was built for version %d", known)
	}
	return name
}

// Clock is one moment by two clocks, in ns.
type Clock struct {
	CUPTI       int64 // as in records
	Monotonic   int64 // CLOCK_MONOTONIC
	Uncertainty int64 // how far the moments may be apart
}

// Clock reads the clocks. Reading them at the beginning and the end of a recording shows whether they drifted apart.
func (r *Recorder) Clock() (Clock, error) {
	var c C.gs_cupti_clock
	err := r.do("CUPTI's clock cannot be read", func(e *C.gs_cupti_error) C.int32_t { return C.t_clock(r.table, &c, e) })
	return clockOf(&c), err
}

func clockOf(c *C.gs_cupti_clock) Clock {
	return Clock{int64(c.cupti), int64(c.monotonic), int64(c.uncertainty)}
}
