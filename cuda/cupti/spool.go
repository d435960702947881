package cupti

/*
#include <stdlib.h>
#include "recorder.h"
*/
import "C"

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"unsafe"

	"gpt2scope/internal/humanize"
	"gpt2scope/internal/place"
	"gpt2scope/traces"
)

// Control is what the programs do that record without a program of ours in them: a folder in which each process has a
// spool. See GS_SPOOL_ENV in recorder.h.
type Control struct {
	Folder  string
	library string
	c       *C.gs_spool_control
	mapped  []byte
	known   map[string]bool // spools that are open
}

// NewControl makes a folder for spools that together hold so many bytes. With graphNodes the nodes of graphs are
// recorded, else graphs as wholes; with allCalls also calls that only ask.
func NewControl(limit int64, graphNodes, allCalls bool) (*Control, error) {
	library, err := place.Find(LibraryEnv, Library, target)
	if err != nil {
		return nil, absent(err)
	}
	folder, err := os.MkdirTemp("", "infer-record-")
	if err != nil {
		return nil, fmt.Errorf("%s has no place for a spool: %w; set TMPDIR to another folder", os.TempDir(), humanize.Cause(err))
	}
	k := &Control{Folder: folder, known: map[string]bool{}}
	if k.library, err = filepath.Abs(library); err == nil {
		err = k.create()
	}
	if err != nil {
		os.RemoveAll(folder)
		return nil, fmt.Errorf("%s: no spool can be made: %w; set TMPDIR to another folder", folder, humanize.Cause(err))
	}
	k.c.version, k.c.limit, k.c.options = C.GS_CUPTI_ABI_VERSION, C.int64_t(limit), Options{}.c()
	k.c.options.kinds = k.c.options.kinds&^(1<<KindExternal) | 1<<KindMemory | 1<<KindDevice
	if !graphNodes {
		k.c.options.kinds ^= 1<<KindNode | 1<<KindGraph
	}
	if allCalls {
		k.c.options.kinds |= 1 << C.GS_CUPTI_QUERIES
	}
	text := cuptiPaths()
	for i := range min(len(text), len(k.c.libraries)-1) {
		k.c.libraries[i] = C.char(text[i])
	}
	return k, nil
}

func (k *Control) create() error {
	f, err := os.Create(filepath.Join(k.Folder, "control"))
	if err != nil {
		return err
	}
	defer f.Close()
	size := int(unsafe.Sizeof(*k.c))
	if _, err = f.Write(make([]byte, size)); err != nil { // a hole could fail later
		return err
	}
	k.mapped, err = syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err == nil {
		k.c = (*C.gs_spool_control)(unsafe.Pointer(&k.mapped[0]))
	}
	return err
}

// Environment returns the variables by which a program and its children record.
func (k *Control) Environment() []string {
	return []string{C.GS_SPOOL_ENV + "=" + k.Folder, "CUDA_INJECTION64_PATH=" + k.library,
		"NVTX_INJECTION64_PATH=" + k.library}
}

// Record switches recording on or off. It takes effect within about 20 ms.
func (k *Control) Record(on bool) {
	v := int32(0)
	if on {
		v = 1
	}
	atomic.StoreInt32((*int32)(&k.c.on), v)
}

// Recording reports whether it is on.
func (k *Control) Recording() bool { return atomic.LoadInt32((*int32)(&k.c.on)) > 0 }

// Finish ends recording in all processes. [Spool.State] says when a process has done so.
func (k *Control) Finish() { atomic.StoreInt32((*int32)(&k.c.on), -1) }

// Remove deletes the spools.
func (k *Control) Remove() error {
	return errors.Join(syscall.Munmap(k.mapped), os.RemoveAll(k.Folder))
}

// Spool is what one process wrote. Its fields are as of the last [Spool.Read].
type Spool struct {
	Process     int
	Command     []string
	State       State
	CUDA        bool  // it was started
	First, Last Clock // CUPTI's, if there is one
	Failure     error // why nothing, or not everything, was recorded

	control  *Control
	file     *os.File
	at, end  int64 // in the file
	header   C.gs_spool_header
	texts    map[uint64]string
	rest     []byte           // a record without all of its bytes
	timeless map[uint64]int64 // records without times, by correlation id
}

// State is how far a process is.
type State int32

// The states of a process, numbered as in recorder.h.
const (
	Runs    State = iota // or was killed
	Exited               // its last records are in the spool
	Stopped              // recording ended before the process
)

const headerSize, recordSize = int(C.sizeof_gs_spool_header), int(C.sizeof_gs_cupti_record)

// NewSpools opens those that were not there at the last call.
func (k *Control) NewSpools() (list []*Spool) {
	paths, _ := filepath.Glob(filepath.Join(k.Folder, "*.*"))
	for _, path := range paths {
		if k.known[path] {
			continue
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		s := &Spool{control: k, file: f, at: int64(headerSize), texts: map[uint64]string{},
			timeless: map[uint64]int64{}}
		if s.readHeader(); s.Process == 0 { // it is being made
			f.Close()
			continue
		}
		k.known[path] = true
		list = append(list, s)
	}
	return list
}

// readHeader reads how far the process is.
func (s *Spool) readHeader() {
	raw := (*[headerSize]byte)(unsafe.Pointer(&s.header))
	if n, _ := s.file.ReadAt(raw[:], 0); n < headerSize || s.header.version != C.GS_CUPTI_ABI_VERSION {
		return
	}
	h := &s.header
	s.Process, s.State = int(h.process), State(h.state)
	command := unsafe.Slice((*byte)(unsafe.Pointer(&h.command[0])), len(h.command))
	s.Command = strings.FieldsFunc(string(command), func(r rune) bool { return r == 0 })
	s.First, s.Last, s.CUDA = clockOf(&h.first), clockOf(&h.last), h.cuda != 0
	s.end = int64(headerSize) + int64(h.size)
	s.Failure = nil
	if h.refused != 0 || h.error.call[0] != 0 {
		s.Failure = explain("CUPTI cannot be used", &h.error)
	}
}

// Read returns the records that were written since the last call, at most about a million. An empty list says that there
// are no more now. With forget their place in the spool is given back.
func (s *Spool) Read(forget bool) ([]Record, error) {
	s.readHeader()
	raw := make([]byte, min(s.end-s.at, 1<<27))
	n, err := s.file.ReadAt(raw, s.at)
	if err != nil && err != io.EOF {
		return nil, fmt.Errorf("the spool of process %d: %w", s.Process, humanize.Cause(err))
	}
	raw = append(s.rest, raw[:n]...)
	from := s.at
	s.at += int64(n)
	records := make([]Record, 0, len(raw)/recordSize)
	for len(raw) >= recordSize {
		c := (*C.gs_cupti_record)(unsafe.Pointer(&raw[0]))
		hash := *(*uint64)(unsafe.Pointer(&c.name)) // no pointer here
		if c.kind == C.GS_SPOOL_TEXT {
			length := int(c.name_length)
			size := recordSize + (length+7)&^7
			if len(raw) < size {
				break
			}
			s.texts[hash], raw = string(raw[recordSize:recordSize+length]), raw[size:]
			continue
		}
		r := read(c, s.texts[hash])
		if r.Kind == KindRange {
			r.Domain, r.Category = s.texts[r.Origin], s.texts[r.Node]
		}
		if r.timeless() {
			s.timeless[r.Correlation]++
		}
		records, raw = append(records, r), raw[recordSize:]
	}
	s.rest = bytes.Clone(raw)
	if forget && n > 0 {
		const keepSize, punchHole = 1, 2
		if syscall.Fallocate(int(s.file.Fd()), keepSize|punchHole, from, int64(n)) == nil {
			atomic.AddInt64((*int64)(&s.control.c.used), -int64(n))
		}
	}
	return records, nil
}

// Close closes the file.
func (s *Spool) Close() error { return s.file.Close() }

// Describe writes to a header what was recorded of the process, and what was lost. Work without times whose call is not
// among the events was launched before recording began, and is not lost.
func (s *Spool) Describe(h *traces.Header, events []traces.Event) {
	drift := s.Last.CUPTI - s.First.CUPTI - (s.Last.Monotonic - s.First.Monotonic)
	var timeless int64
	for i := range events {
		if e := &events[i]; len(s.timeless) > 0 && e.Kind.IsCall() {
			timeless += s.timeless[e.Correlation]
			delete(s.timeless, e.Correlation)
		}
	}
	describe(h, max(s.Last.Uncertainty, drift, -drift), &s.header.cupti, &s.header.losses, timeless)
	h.Process, h.Incomplete = int64(s.Process), nil
	if s.Failure != nil {
		h.Incomplete = []string{s.Failure.Error()}
	}
	if n := int64(s.header.unspooled); n > 0 {
		what := "records for which the spool had no room (--spool)"
		if s.header.failure != 0 {
			what = "records that could not be written to the spool (" + syscall.Errno(s.header.failure).Error() + ")"
		}
		h.Drop(what, n)
	}
}

// GPU describes the GPU of a record of KindDevice.
func (r *Record) GPU() traces.Device {
	var uuid [16]byte
	binary.NativeEndian.PutUint64(uuid[:], r.Node)
	binary.NativeEndian.PutUint64(uuid[8:], r.Origin)
	return traces.Device{ID: int(r.Device), Name: r.Name, Compute: fmt.Sprintf("%d.%d", r.Block[0], r.Block[1]),
		SMs: int(r.Grid[0]), Memory: int64(r.Bytes), Bandwidth: 1000 * int64(r.External), ClockHz: 1000 * int64(r.Correlation),
		WarpsPerSM: int(r.Grid[1]), BlocksPerSM: int(r.Grid[2]), RegistersPerSM: int(r.Registers),
		SharedPerSM: int(r.StaticShared), UUID: fmt.Sprintf("GPU-%x-%x-%x-%x-%x", uuid[:4], uuid[4:6], uuid[6:8], uuid[8:10], uuid[10:])}
}
