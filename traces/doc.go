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
// # Other tools
//
// [Open] recognises our files, the sqlite exports of Nsight Systems and the JSON of
// PyTorch's profiler. [Load] reads a whole trace and attributes it:
//
//   - A kernel belongs to the API call with its correlation id. Time says nothing
//     of it: kernels start long after the range of their launch has closed.
//   - An API call belongs to the innermost range that is open on its thread when
//     it begins.
//   - A kernel of a CUDA graph takes its step from the node that it ran as: from
//     the instantiated node to the captured one, and from there to the range that
//     was open when it was captured. Its pass is that of the launch.
//
// What can not be attributed is counted, in [Attribution], and told by [Examine].
//
// # Tables
//
// [Summarize] says where the wall time went, by stage, layer, phase or kernel. It
// sweeps once over the work in the order in which it began: each nanosecond belongs
// to the piece that began first of those that still run (the exclusive time of its
// row), or, where nothing runs, to a cause of idle time. So the rows sum to the
// wall time exactly, however kernels or threads overlap. Floors come from
// [Header.Floor], with the cost that a step has at its pass' position. The tables
// by operation and by launch have times that lie in one another, and do not sum.
// Shares are withheld where the trace is incomplete: [Trust] says so in a line.
//
// # Errors
//
// Files are not trusted: no allocation is sized by a field of theirs. Of a file
// that was cut off all whole events are read, then a [*TruncatedError] comes.
package traces
