// Package traces is the record of where time went: one form of event for every
// recorder, a file that holds them, and readers of the files of other tools.
//
// # The record
//
// An [Event] has a time and a duration in nanoseconds after the trace's base, a
// [Kind], a [Lane] (a thread, the API calls of a thread, a stream), a name, the
// tag of the plan's step that it belongs to, and what its source gave besides. A
// [Header] says what a reader must know beforehand: who recorded, by which clock,
// on which device, the plans of the passes with the cost of each step, and what
// was not recorded. The package knows no model: the plans travel in the header.
//
// # The file
//
// FORMAT.md describes it. It is Chrome trace JSON that Perfetto opens, written
// as a stream: header, one event a line, and an end that counts them. Names of
// arguments are those of PyTorch's Kineto.
//
//	w := traces.NewWriter(f, &header)
//	w.Write(event) // errors stick
//	err := w.Close()
//
//	header, events, err := traces.Read(f)
//	for e, err := range events { ... }
//
// # Attribution
//
// [NewTrace] attributes what the source of a trace did not:
//
//   - A kernel belongs to the API call with its correlation id. Time says nothing
//     of it: kernels start long after the range of their launch has closed.
//   - An API call belongs to the innermost range that is open on its thread when
//     it begins.
//   - A kernel of a CUDA graph takes its step from the node that it ran as: from
//     the instantiated node to the captured one, and from there to the range that
//     was open when it was captured. Its pass is that of the launch.
//
// What cannot be attributed is counted in [Attribution] and reported by [Examine].
// Shares of time are withheld where a trace is incomplete: [Trust] says so in a line.
//
// # The packages below
//
// This package imports the standard library alone. traces/nsys reads the exports of
// Nsight Systems, and traces/load opens a file of any format. traces/window computes the
// part of a trace that counts; traces/tables, traces/advise, traces/diff, traces/pprof and
// traces/report say where its time went.
//
// # Errors
//
// Files are not trusted: no allocation is sized by a field of theirs. Of a file
// that was cut off all whole events are read, then a [*TruncatedError] comes.
package traces
