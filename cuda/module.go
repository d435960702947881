package cuda

// #include "shim.h"
import "C"

import (
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"unsafe"
)

// Module is CUDA C++ compiled at run time.
type Module struct {
	dev *Device
	c   atomic.Pointer[C.gs_module] // nil once freed
}

// CompileError is source that does not compile.
type CompileError struct {
	Name string // of the source
	Log  string // the compiler's words
}

func (e *CompileError) Error() string {
	return fmt.Sprintf("%s does not compile: %s", e.Name, strings.TrimSpace(e.Log))
}

// Compile compiles CUDA C++ source for the device with NVRTC, which it finds and opens first. Kernels must be extern
// "C" to be found by their names. name is what the compiler calls the source. Source that does not compile is a
// *CompileError.
func (d *Device) Compile(name, source string) (*Module, error) {
	if err := d.lib.openNVRTC(); err != nil {
		return nil, err
	}
	cname, csource := C.CString(name), C.CString(source)
	defer C.free(unsafe.Pointer(cname))
	defer C.free(unsafe.Pointer(csource))
	const logBytes = 64 << 10
	log := (*C.char)(C.calloc(1, logBytes))
	defer C.free(unsafe.Pointer(log))
	var c *C.gs_module
	stop := keepSignals()
	err := failed(C.call_gs_module_compile(d.lib.table, d.index, csource, cname, log, logBytes, &c))
	stop()
	if err != nil {
		if text := C.GoString(log); text != "" {
			return nil, &CompileError{name, text}
		}
		return nil, err
	}
	m := &Module{dev: d}
	m.c.Store(c)
	return m, nil
}

// Free unloads the module and its functions. Again, it does nothing.
func (m *Module) Free() error {
	return release(&m.c, func(c *C.gs_module) C.gs_result { return C.call_gs_module_destroy(m.dev.lib.table, c) })
}

// Function is a kernel of a module.
type Function struct {
	m    *Module
	name string
	c    unsafe.Pointer
}

// Function finds a kernel by its name.
func (m *Module) Function(name string) (*Function, error) {
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	var f unsafe.Pointer
	if err := failed(C.call_gs_module_function(m.dev.lib.table, m.c.Load(), cname, &f)); err != nil {
		return nil, fmt.Errorf("kernel %s: %w", name, err)
	}
	return &Function{m, name, f}, nil
}

// Dim is the size of a grid in blocks, or of a block in threads. 0 is 1.
type Dim struct{ X, Y, Z int }

// Launch is how a function is launched.
type Launch struct {
	Grid, Block Dim
	Shared      int // bytes of dynamic shared memory per block
}

// maxArguments is what the trampoline has room for.
const maxArguments = 64

// Launch launches the kernel on a stream of its device. The arguments must have the types of the kernel's parameters:
// Ptr, int32, uint32, int64, uint64, float32, float64, or *Buffer for its address. The types are not checked, since
// CUDA does not report them.
func (f *Function) Launch(s *Stream, l Launch, arguments ...any) error {
	if f.m.c.Load() == nil {
		return fmt.Errorf("Launch: the module of kernel %s: %w", f.name, ErrFreed)
	}
	if len(arguments) > maxArguments {
		return &ShapeError{"Launch", fmt.Sprintf("kernel %s with %d arguments; %d is the most", f.name, len(arguments),
			maxArguments)}
	}
	for _, d := range []*Dim{&l.Grid, &l.Block} {
		for _, n := range []*int{&d.X, &d.Y, &d.Z} {
			if *n == 0 {
				*n = 1
			}
			if *n < 0 || *n > math.MaxInt32 {
				return &ShapeError{"Launch", fmt.Sprintf("kernel %s with grid %v, block %v", f.name, l.Grid, l.Block)}
			}
		}
	}
	threads := l.Block.X * l.Block.Y
	if l.Block.X > 1024 || l.Block.Y > 1024 || l.Block.Z > 64 || threads > 1024 || threads*l.Block.Z > 1024 {
		return &ShapeError{"Launch", fmt.Sprintf("kernel %s with a block of %v threads; 1024 is the most", f.name, l.Block)}
	}
	if l.Shared < 0 || l.Shared > f.m.dev.info.SharedPerBlock {
		return &ShapeError{"Launch", fmt.Sprintf("kernel %s with %d bytes of shared memory; the device has %d", f.name,
			l.Shared, f.m.dev.info.SharedPerBlock)}
	}
	var words [maxArguments]C.uint64_t
	for i, a := range arguments {
		switch v := a.(type) {
		case Ptr:
			words[i] = C.uint64_t(v)
		case *Buffer:
			p := v.Ptr()
			if p == 0 {
				return fmt.Errorf("Launch: argument %d of kernel %s: %w", i, f.name, ErrFreed)
			}
			words[i] = C.uint64_t(p)
		case int32:
			words[i] = C.uint64_t(uint32(v))
		case uint32:
			words[i] = C.uint64_t(v)
		case int64:
			words[i] = C.uint64_t(v)
		case uint64:
			words[i] = C.uint64_t(v)
		case float32:
			words[i] = C.uint64_t(math.Float32bits(v))
		case float64:
			words[i] = C.uint64_t(math.Float64bits(v))
		default:
			return &ShapeError{"Launch",
				fmt.Sprintf("argument %d of kernel %s is a %T; it must be a Ptr, *Buffer, int32, uint32, "+
					"int64, uint64, float32 or float64", i, f.name, a)}
		}
	}
	return failed(C.call_function_launch(s.raw(), f.c, C.uint32_t(l.Grid.X), C.uint32_t(l.Grid.Y), C.uint32_t(l.Grid.Z),
		C.uint32_t(l.Block.X), C.uint32_t(l.Block.Y), C.uint32_t(l.Block.Z), C.uint32_t(l.Shared), &words[0],
		C.int(len(arguments))))
}

// Occupancy is what a kernel needs, and how many of its blocks fit.
type Occupancy struct {
	Registers          int     // per thread
	LocalBytes         int     // per thread: spills and arrays
	BlocksPerProcessor int     // resident at once
	Fraction           float64 // of a processor's threads, those that can be resident
}

// Occupancy returns how many blocks of so many threads, with so many bytes of dynamic shared memory, are resident on a
// processor at once.
func (f *Function) Occupancy(threads, shared int) (Occupancy, error) {
	if f.m.c.Load() == nil {
		return Occupancy{}, fmt.Errorf("Occupancy: the module of kernel %s: %w", f.name, ErrFreed)
	}
	if threads < 1 || threads > 1024 || shared < 0 {
		return Occupancy{}, &ShapeError{"Occupancy",
			fmt.Sprintf("%d threads, %d bytes of shared memory; threads must be from 1 to 1024", threads, shared)}
	}
	var c C.gs_occupancy
	c.size = C.uint32_t(unsafe.Sizeof(c))
	d := f.m.dev
	if err := failed(C.call_gs_function_occupancy(d.lib.table, d.index, f.c, C.int(threads),
		C.uint32_t(shared), &c)); err != nil {
		return Occupancy{}, err
	}
	return Occupancy{int(c.registers), int(c.local_bytes), int(c.blocks_per_processor),
		float64(c.blocks_per_processor) * float64(threads) / float64(max(1, d.info.ThreadsPerProcessor))}, nil
}
