package cupti

import "fmt"

// Kind is what a record is of.
type Kind uint8

// The kinds of records, numbered as in recorder.h.
const (
	KindKernel     Kind = iota + 1 // a kernel ran
	KindMemcpy                     // a copy
	KindMemcpyPeer                 // a copy between devices
	KindMemset                     // a set
	KindRuntime                    // a call of the CUDA runtime API
	KindDriver                     // a call of the CUDA driver API
	KindSync                       // a synchronisation
	KindOverhead                   // time that CUPTI or the driver took besides
	KindExternal                   // ties the tag of a Push to a correlation id
	KindNode                       // a graph node was made
	KindGraph                      // a graph ran, in place of its nodes
	KindMemory                     // memory was allocated or freed
	KindDevice                     // what a GPU is; [Record.GPU] reads it
	KindRange                      // NVTX, only in spools
	numKinds
)

var kindNames = [numKinds]string{
	KindKernel: "kernels", KindMemcpy: "copies", KindMemcpyPeer: "copies between devices", KindMemset: "sets",
	KindRuntime: "runtime calls", KindDriver: "driver calls", KindSync: "synchronisations", KindOverhead: "overhead",
	KindExternal: "tags of API calls", KindNode: "graph nodes",
	KindGraph: "graphs", KindMemory: "allocations", KindDevice: "facts about GPUs", KindRange: "ranges",
}

// String names what records of the kind are of, such as "kernels".
func (k Kind) String() string {
	if k > 0 && k < numKinds {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// AllStreams is the Stream of a synchronisation of a whole context.
const AllStreams = 1<<32 - 1

// Record is one activity record, whatever version of CUPTI wrote it. What does not belong to its kind is zero.
type Record struct {
	Kind       Kind
	Start, End int64  // ns by CUPTI's clock; 0 if CUPTI does not know
	Name       string // of a kernel, mangled; of a call, such as "cudaLaunchKernel_v7000"

	Device, Context, Stream uint32
	Correlation             uint64 // shared by an API call and what it caused
	External                uint64 // of KindExternal and KindNode: the tag that was pushed
	Tagged                  bool   // of KindNode: a tag was pushed

	Node   uint64 // graph node that ran, or was made
	Origin uint64 // of KindNode: the one that it was cloned from

	Grid, Block                 [3]int32
	Registers                   uint32 // per thread
	StaticShared, DynamicShared int32  // bytes per block

	Bytes    uint64 // of a copy or set
	CopyKind uint8  // CUpti_ActivityMemcpyKind
	From, To uint8  // CUpti_ActivityMemoryKind: pageable, pinned, device, ...

	Process, Thread uint32 // of calls and nodes; of overhead where it is known

	// Detail is the id of the API function of a call, the CUpti_ActivitySynchronizationType or CUpti_ActivityOverheadKind,
	// of KindMemory 2 if it was freed, and of KindRange one of the constants below.
	Detail uint32

	Domain, Category string // of KindRange, whose External is the payload, if Tagged
}

// What a record of NVTX is, numbered as gs_range in recorder.h.
const (
	rangePush uint32 = iota
	rangePop
	rangeStart
	rangeEnd
	rangeMark
)

// overheadNames are those of Kineto, by CUpti_ActivityOverheadKind.
var overheadNames = map[uint32]string{1: "Driver Compiler", 1 << 16: "Buffer Flush", 2 << 16: "Instrumentation",
	3 << 16: "Resource", 4 << 16: "Runtime Triggered Module Loading", 5 << 16: "Lazy Function Loading",
	6 << 16: "Command Buffer Full", 7 << 16: "Activity Buffer Request", 8 << 16: "UVM Activity Init"}
