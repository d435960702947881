package traces

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"gpt2scope/internal/lazyregexp"
)

// This file has all that is concluded from names. CUDA's API functions and copies, and the
// ranges of foreign files, say only by name what they are.

// Call is what an API call does.
type Call uint8

const (
	CallOther        Call = iota
	CallLaunch            // launches a kernel
	CallGraphLaunch       // launches a graph
	CallBeginCapture      // from here on, calls of the thread record a graph and cause no work
	CallEndCapture        // until here
	CallLoad              // loads kernels
	CallAlloc             // allocates or frees memory of the GPU, or pins memory of the host
	CallStreamWait        // has a stream wait for an event, mostly of another one
	CallSync              // waits for the work of a stream, event or device
	CallCopy              // copies or sets, and waits until that is done
)

// Call returns what an API call does; CallOther for other events.
func (e *Event) Call() Call {
	if !e.Kind.IsCall() {
		return CallOther
	}
	has := func(part string) bool { return strings.Contains(e.Name, part) }
	switch {
	case has("LaunchKernel"), has("LaunchCooperativeKernel"), has("EnqueueKernelLaunch"):
		return CallLaunch
	case has("GraphLaunch"):
		return CallGraphLaunch
	case has("StreamBeginCapture"):
		return CallBeginCapture
	case has("StreamEndCapture"):
		return CallEndCapture
	case has("ModuleLoad"), has("LibraryLoad"):
		return CallLoad
	case has("StreamWaitEvent"):
		return CallStreamWait
	case has("Synchronize"), e.Name == "urEventWait", e.Name == "urQueueFinish":
		return CallSync
	case (has("Memcpy") || has("Memset")) && !has("Async"):
		return CallCopy
	case allocates().MatchString(e.Name):
		return CallAlloc
	}
	return CallOther
}

// allocates matches calls that allocate: "cudaMalloc", "cuMemAlloc_v2", "cuMemCreate", "hipFree", "cudaHostAlloc".
var allocates = lazyregexp.New(`^(cuda|hip)(Malloc|Free|HostAlloc|HostRegister|HostFree|HostMalloc)|` +
	`^cuMem(Alloc|Free|Create|Map|Unmap|SetAccess|Release|Host)`)

// loaders match ranges in which a program waits for its next input: "enumerate(DataLoader)#_...Iter.__next__".
var loaders = lazyregexp.New(`(?i)\bdata.?load(er|ing)\b|\bdataloader\.py\(\d+\): __next__`)

// LoadsData reports whether an event of the host is a range in which the program waits for its next input.
func (e *Event) LoadsData() bool { return e.Kind.IsRange() && loaders().MatchString(e.Name) }

// Communicates reports whether a kernel is of a library that exchanges data between GPUs: few blocks and long waits
// for other GPUs are its design.
func (e *Event) Communicates() bool {
	return e.Kind == KindKernel && communicates().MatchString(e.Name)
}

var communicates = lazyregexp.New(`(?i)nccl|rccl|mscclpp|nvshmem|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|deepep`)

// Pageable reports whether a copy is from or to pageable memory, and whether its source says
// so: "Memcpy HtoD (Pageable -> Device)".
func (e *Event) Pageable() (is, known bool) {
	return strings.Contains(e.Name, "Pageable"), e.Kind == KindMemcpy && strings.Contains(e.Name, "->")
}

// operatorRange is the name of a range that PyTorch's emit_nvtx makes for an operator: "aten::mul, seq = 9, op_id = 2".
var operatorRange = lazyregexp.New(`^(.+?), (?:stashed )?(?:seq|op_id) = (\d*)`)

// Names by the numbers of cupti_activity.h, as PyTorch's Kineto writes them.
var (
	copyWays = []string{1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD",
		9: "HtoH", 10: "PtoP", 11: "unified HtoD", 12: "unified DtoH", 13: "unified DtoD"} // from 11 on nsys's
	memoryKinds = []string{"Unknown", "Pageable", "Pinned", "Device", "Array", "Managed", "Device Static",
		"Managed Static"}
	syncNames     = []string{1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
	versionSuffix = lazyregexp.New(`_v\d+$`)
)

func nameAt(names []string, n int64, otherwise string) string {
	if n >= 0 && n < int64(len(names)) {
		return cmp.Or(names[n], otherwise)
	}
	return otherwise
}

// MemoryName names a CUpti_ActivityMemoryKind.
func MemoryName(kind int64) string { return nameAt(memoryKinds, kind, "Unknown") }

// SyncName names a CUpti_ActivitySynchronizationType.
func SyncName(kind int64) string { return nameAt(syncNames, kind, "Sync") }

// CopyName names a copy by its CUpti_ActivityMemcpyKind.
func CopyName(way int64) string { return strings.TrimSpace("Memcpy " + nameAt(copyWays, way, "")) }

// CallName returns the name of an API function without the version of its interface.
func CallName(full string) string { return versionSuffix().ReplaceAllString(full, "") }

// SetFactsOfName sets the fields that foreign files express only in the event's name: what an API call waits for,
// whether a range is a warm-up, and whether it is an operator. Readers of such files call it once per event.
func (e *Event) SetFactsOfName() {
	if e.Kind == KindRange && strings.Contains(e.Name, " = ") {
		if m := operatorRange().FindStringSubmatch(e.Name); m != nil {
			if e.Kind, e.Name = KindOp, m[1]; strings.Contains(m[0], "seq = ") {
				e.Value = float64(parseInt([]byte(m[2])))
			}
		}
	}
	e.WarmUp = e.Kind == KindRange && (e.Name == "warm-up" || e.Name == "record graph")
	switch e.Wait = WaitNone; e.Call() {
	case CallSync:
		e.Wait = WaitSync
	case CallCopy:
		e.Wait = WaitCopy
	}
}

// oneLayer matches a layer in a name: "h.3", "h.3@1", "model.layers.3", "Layer 3", "block_3".
var oneLayer = lazyregexp.New(`(?i)\b(h\.|layers?[._ #:]?|blocks?[._ #:]?)(\d{1,6}(?:@\d+)?)\b`)

// InAnyLayer replaces the layers in a step's name: "h.3.attn.c_attn" becomes "h.N.attn.c_attn", and "Layer 3/attn"
// becomes "Layer N/attn". The layer that runs next becomes N+1: "h.3.residual_2+h.4.ln_1" becomes
// "h.N.residual_2+h.(N+1).ln_1". Layers with a slot ("h.3@1") are replaced too.
func InAnyLayer(step string) string {
	first := ""
	if m := oneLayer().FindStringSubmatch(step); m != nil {
		first = m[2]
	}
	return oneLayer().ReplaceAllStringFunc(step, func(layer string) string {
		m := oneLayer().FindStringSubmatch(layer)
		if m[2] == first {
			return m[1] + "N"
		}
		return m[1] + "(N+1)"
	})
}

// LayerOf returns the first layer in a step's name, -1 for none.
func LayerOf(step string) int {
	m := oneLayer().FindStringSubmatch(step)
	if m == nil {
		return -1
	}
	number, _, _ := strings.Cut(m[2], "@")
	layer, err := strconv.Atoi(number)
	if err != nil {
		return -1
	}
	return layer
}

// ofFrameworks begin the names of ranges that a framework makes by itself, not the program.
var ofFrameworks = []string{"Torch-Compiled Region", "TorchDynamo ", "Torch Inductor", "## Call ", "AOTDispatcher ",
	"Pregraph bytecode", "CompiledFunction", "PyTorch Profiler", "Runtime Triggered", "cudagraph"}

// stagesAtMost begin the names of ranges that a framework makes for a part of the program's passes.
var stagesAtMost = []string{"Optimizer.", "enumerate(DataLoader)#", "DistributedDataParallel.", "FullyShardedDataParallel.",
	"FSDP::", "nccl:", "gloo:", "c10d::", "record_param_comms", "pipeline:"}

// NoPass reports whether a range is a framework's part of a pass, and no pass by itself.
func (e *Event) NoPass() bool {
	return slices.ContainsFunc(stagesAtMost, func(begin string) bool { return strings.HasPrefix(e.Name, begin) })
}

// IsPython reports whether a range is a function of Python that a profiler saw.
func (e *Event) IsPython() bool {
	return e.Kind == KindRange && (e.Domain == "python_function" || e.Domain == "Python")
}

// ofLibraries are NVTX domains of libraries.
var ofLibraries = []string{"NCCL", "CCCL", "CUB", "Thrust", "cuBLAS", "cuBLASLt", "cublas", "cublasLt", "cuDNN",
	"cudnn", "cuSPARSE", "cuSOLVER", "TensorRT", "RAFT", "libcudf", "python_function", "Python", "Trace"}

// OfProgram reports whether a range was made by the program itself, as far as its name and
// domain tell: frameworks and libraries make ranges of their own.
func (e *Event) OfProgram() bool {
	return e.Kind == KindRange && !slices.Contains(ofLibraries, e.Domain) &&
		!slices.ContainsFunc(ofFrameworks, func(begin string) bool { return strings.HasPrefix(e.Name, begin) })
}

// The kernels of PyTorch that apply an operation to each element, and what their template
// arguments call it: "CUDAFunctor_add<float>", "BinaryFunctor<float, float, float,
// MulFunctor<float>>", "tanh_kernel_cuda(...)", "ArgMaxOps<float>".
var (
	appliers    = lazyregexp.New(`(?:elementwise|reduce|index|unrolled|scan|distribution)\w*kernel\w*<`)
	cudaFunctor = lazyregexp.New(`CUDAFunctor\w*?_([a-z]\w*)`)
	functor     = lazyregexp.New(`(\w+?)(?:Functor\b|_kernel_cuda|_scalar_kernel_impl|_kernel_impl|KernelImpl|KernelCUDA|_cuda_out|CUDAKernelImpl|Ops<)`)
	withScalar  = lazyregexp.New(`[AB]UnaryFunctor|OnSelf`)
)

// Applies returns the operation that an elementwise kernel or a reduction of PyTorch applies:
// "add", "Mul scalar", "tanh". It is "" for other kernels.
func Applies(kernel string) string {
	at := appliers().FindStringIndex(kernel)
	if at == nil {
		return ""
	}
	arguments := kernel[at[1]:]
	name := ""
	if m := cudaFunctor().FindStringSubmatch(arguments); m != nil {
		name = m[1]
	} else {
		for _, m := range functor().FindAllStringSubmatch(arguments, -1) {
			switch m[1] {
			case "AUnary", "BUnary", "Binary", "CUDA", "Reduce", "gpu": // what they apply follows
				continue
			}
			name = strings.TrimSuffix(strings.TrimSuffix(strings.Trim(m[1], "_"), "_tensor"), "CUDA")
			break
		}
	}
	if name != "" && withScalar().MatchString(arguments) {
		name += " scalar"
	}
	return name
}

// ShortKernel returns BareKernel's name, with the operation that the kernel applies if it is one of
// PyTorch's for each element.
func ShortKernel(name string) string {
	short := name
	// CUTLASS has one kernel, whose argument says what it computes.
	if _, kernel, ok := strings.Cut(name, "cutlass::Kernel2<"); ok {
		short = kernel
		if i := strings.IndexAny(kernel, "<>,:"); i > 0 {
			short = kernel[:i]
		}
	}
	short = BareKernel(short)
	if applies := Applies(name); applies != "" {
		short += " (" + applies + ")"
	}
	return short
}

// BareKernel returns the name of a kernel without its return type, namespaces that have no name,
// template arguments and parameters.
func BareKernel(name string) string {
	name = strings.TrimPrefix(name, "void ")
	for _, anonymous := range []string{"<unnamed>::", "(anonymous namespace)::"} {
		name = strings.ReplaceAll(name, anonymous, "")
	}
	if i := strings.IndexAny(name, "<("); i > 0 {
		name = name[:i]
	}
	return name
}
