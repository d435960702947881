// Package cupti records what CUDA does by CUPTI's activity records: kernels, copies, sets, calls of the runtime and the
// driver API, synchronisations, the making of graph nodes, and what recording itself took. NVIDIA describes CUPTI at
// docs.nvidia.com/cupti.
//
// A [Recorder] records this process. A [Control] and its [Spool]s record other processes, for package inject.
//
//	rec, err := cupti.Open(cupti.Options{}) // before the CUDA context is made
//	if errors.Is(err, cupti.ErrUnavailable) { ... }
//	defer rec.Close()
//	err = rec.Start()
//	rec.Push(tag) // on a locked OS thread, around the launches of a step
//	...
//	rec.Pop()
//	// when the GPU has finished:
//	err = rec.Flush(false)
//	for r := range rec.Records() { ... }
//
// # Which step a kernel belongs to
//
// Push puts a tag, 64 bits of the caller's, on what the thread does until Pop. Each API call in between leaves a
// [KindExternal] record that ties the tag to its correlation id, which the kernel has too.
//
// In a CUDA graph the kernels of a replay all have the correlation id of the graph's launch, and the id of the
// instantiated node that they ran as. So the nodes are noted as they are made: on capture with the tag that is pushed
// then, on instantiation with the node that they are a clone of ([KindNode]). [Convert] follows a kernel's node to the
// captured one for its step, and its correlation id to the launch's tag for its pass.
//
// # Order of calls
//
// Open before the CUDA context is made: the sizes of CUPTI's buffers on the device hold for contexts made later, and
// API calls before Open are not seen. Open before a graph is captured, or its nodes are not known, and Start before it
// is instantiated, so that CUPTI prepares it for records of its nodes. A recorder that is opened late still records
// what comes after.
//
// # What it costs
//
// A process that does not call Open pays nothing. While it records, each API call, kernel and copy leaves a record:
// about a microsecond for a kernel of a graph, on the device's side, and the time between kernels grows by that.
// Kernels that were to overlap the end of the one before (programmatic dependent launch) may overlap less or not at
// all, since each gets a time stamp at its beginning and end. So a recorded step is longer than one that is not:
// compare with a process that never called Open, as Stop and Close do not take CUPTI out of the process.
//
// # Errors
//
// CUPTI has one subscriber. Under Nsight Systems, Nsight Compute or another tool Open fails with [ErrUnavailable], and so
// where a library is missing or the system does not allow recording. Each error is a sentence that says what to do.
package cupti
