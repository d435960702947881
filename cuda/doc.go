// Package cuda is a small, safe face of CUDA for Go: devices, memory, streams, events, graphs, kernels compiled at run
// time, and the kernels of GPT-2.
//
// # Concepts
//
// The CUDA code is one shared library, built by make cuda from csrc/. A program that imports this package has no CUDA
// build dependency: [Open] finds the library at run time; its error names exactly what is missing
// ([*UnavailableError]). abi.h in this folder is the whole interface between both.
//
// A [Library] gives a [Device]; a Device gives memory on it ([Buffer]), pinned host memory that it can read and write
// by itself ([HostBuffer]), a [Stream], an [Event], a [Module] compiled from CUDA C++ source. Work is launched on a
// stream and runs in order there, while the program goes on: launches and copies return at once, [Stream.Synchronize]
// waits. What is launched inside [Stream.Capture] is captured in a [Graph] instead, and replayed by one call.
//
// Copies are asynchronous only from and to pinned memory, so [Stream.CopyToDevice] and [Stream.CopyToHost] take a
// HostBuffer. [Buffer.Write] and [Buffer.Read] take any slice, and end when the copy is done.
//
// # Ownership
//
// Every object knows its device and is freed exactly once, by its Free or Close; freeing it again does nothing. Using
// it after that returns [ErrFreed]. No finalizer calls CUDA: what is not freed lives until the process ends. Free what
// a stream still uses only after Synchronize. An object may be used from any goroutine, by one at a time.
//
// # Errors
//
// The argument structs are checked before they cross into C: a shape that does not fit is a [*ShapeError]. A call that
// fails in CUDA returns [*Error], which has the status and the library's words, and matches [ErrOutOfMemory] where that
// was it. Launches report errors of the launch. An error on the device is reported by the next call that waits.
//
// # Example
//
//	lib, err := cuda.Open()
//	dev, err := lib.Device(0)
//	stream, err := dev.NewStream()
//	defer stream.Close()
//	x, err := dev.Alloc(4 << 20)
//	defer x.Free()
//	err = stream.Set(x, 0, 0, x.Size())
//	err = stream.Synchronize()
package cuda
