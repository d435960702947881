// Package traces defines the record of where time went: one type of event for all recorders, the file that holds the
// events, and the attribution of kernels to steps.
//
// # The record
//
// An [Event] has a time and a duration in nanoseconds after the trace's base, a [Kind], a [Lane] (a thread, the API
// calls of a thread, a stream), a name, the index of the plan's step that it belongs to, and other facts that its
// source gave. A [Header] has what a reader must know first: who recorded, by which clock, on which device, the plans
// of the passes with the cost of each step, and what was not recorded. The package knows no model; the header has the
// plans.
//
// # The file
//
// FORMAT.md describes the file. It is Chrome trace JSON that Perfetto opens, a header, one event per line, and an end
// with their count. Arguments have the names that PyTorch's Kineto gives them.
//
//	err := traces.Write(f, "run.json.gz", &header, events)
//
//	header, events, err := traces.Read(f)
//
// # Attribution
//
// [NewTrace] attributes the events that the source did not attribute:
//
//   - A kernel belongs to the API call with its correlation id. Times cannot tell: a kernel can start long after the
//     range of its launch has ended.
//   - An API call belongs to the innermost range that is open on its thread when the call begins.
//   - A kernel of a CUDA graph gets its step from its graph node: the instantiated node leads to the captured node, and
//     that to the range that was open during capture. Its pass is that of the launch.
//
// [Attribution] counts what could not be attributed, and [Examine] reports it. Shares of time are withheld for an
// incomplete trace; [Trust] says so in one line.
//
// # Errors
//
// Files are not trusted: no field of a file sets the size of an allocation. A file that was cut off is read up to its
// last whole event, followed by a [*TruncatedError].
package traces
