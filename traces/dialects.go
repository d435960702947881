package traces

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gpt2scope/internal/lazyregexp"
)

// This file has the dialects of Chrome trace JSON that are understood. What an event is, its category says, and in
// files without categories the names of its process and thread. An event that neither table has is the work of nobody:
// it is counted in Header.Unknown, and shares mislead.

// Kinds of a dialect beside those of the record.
const (
	kindSkipped Kind = numKinds + iota // says nothing of where time went
	kindRepeats                        // shows work that another track has
	kindUnknown                        // is not understood
)

// meaning is what a category is, and the program whose files have it, if it is only one.
type meaning struct {
	kind Kind
	tool string
}

// meanings has the categories of the programs that write Chrome trace JSON. Those without a program are of Kineto since
// PyTorch 1.12, and, from [KindOp] to [KindOverhead], this package's.
var meanings = map[string]meaning{
	"": {KindRange, ""}, "user_annotation": {KindRange, ""}, "gpu_user_annotation": {KindRange, ""},
	"python_function": {KindRange, ""}, "gpu_counter": {KindCounter, ""}, "cpu_instant_event": {KindCounter, ""},
	"Trace": {kindSkipped, ""}, "cuda_event": {kindSkipped, ""}, "cuda_profiler_range": {kindSkipped, ""},
	"external_correlation": {kindSkipped, ""},
	// Kineto until PyTorch 1.11; the Kernel of ONNX Runtime is the same.
	"Operator": {KindOp, "PyTorch"}, "Runtime": {KindRuntime, "PyTorch"}, "Kernel": {KindKernel, "PyTorch"},
	"Memcpy": {KindMemcpy, "PyTorch"}, "Memset": {KindMemset, "PyTorch"}, "Python": {KindRange, "PyTorch"},
	"xpu_runtime": {KindRuntime, "PyTorch"}, "xpu_driver": {KindDriver, "PyTorch"},
	"Session": {KindOp, "ONNX Runtime"}, "Node": {KindOp, "ONNX Runtime"}, "FEE": {KindRange, "VizTracer"},
}

func init() {
	for k := KindOp; k <= KindOverhead; k++ {
		meanings[kinds[k].category] = meaning{k, ""}
	}
}

// tracks say what events without a category are, by the names of their process and thread; the first row that matches
// counts. The number in a process' name is that of the device, the one in a thread's that of the stream.
var tracks = []struct {
	tool            string
	process, thread func() *regexp.Regexp
	kind            Kind
}{
	{"TensorFlow", lazyregexp.New(`/stream:| Compute$`), nil, kindUnknown}, // has each kernel several times
	{"XLA", lazyregexp.New(`^/device:GPU:(\d+)`), lazyregexp.New(`^Stream #(\d+)`), KindKernel},
	{"XLA", lazyregexp.New(`^/device:GPU:\d+`), nil, kindRepeats}, // "XLA Ops", "Steps", "TensorFlow Name Scope"
	{"XLA", lazyregexp.New(`^/host:`), nil, KindOp},
	{"XLA", lazyregexp.New(`^/device:`), nil, kindUnknown}, // of a TPU
	{"PyTorch", lazyregexp.New(`^CPU functions$`), nil, KindOp},
	{"PyTorch", lazyregexp.New(`^CUDA functions$`), nil, kindUnknown}, // before 1.8, times of operators, nested
}

// ofTrack returns the row of tracks, -1 for none, and the numbers of device and stream.
func ofTrack(process, thread string) (row int, device, stream int64) {
	for i, t := range tracks {
		p := t.process().FindStringSubmatch(process)
		if p == nil {
			continue
		}
		device, stream = 0, -1
		if len(p) > 1 {
			device = parseInt([]byte(p[1]))
		}
		if t.thread != nil {
			s := t.thread().FindStringSubmatch(thread)
			if s == nil {
				continue
			}
			stream = parseInt([]byte(s[1]))
		}
		return i, device, stream
	}
	return -1, 0, 0
}

// place gives events without a category what the names of their tracks say, which may follow the events.
func (c *chrome) place() {
	if len(c.unplaced) == 0 || len(c.processes) == 0 {
		return
	}
	repeated := 0
	for _, i := range c.unplaced {
		e := &c.list[i]
		process := c.processes[e.Lane.Process]
		row, device, stream := ofTrack(process, c.threads[e.Lane])
		if row < 0 || e.Kind != KindRange {
			continue
		}
		c.toolIs(tracks[row].tool)
		switch e.Kind = tracks[row].kind; {
		case e.Kind == kindRepeats:
			repeated++
		case e.Kind == kindUnknown:
			c.header.unknown("track "+process, 1)
		case e.Kind == KindKernel:
			switch {
			case strings.HasPrefix(e.Name, "Memcpy"):
				e.Kind = KindMemcpy
			case strings.HasPrefix(e.Name, "Memset"):
				e.Kind = KindMemset
			}
			e.Lane = Stream(0, int32(min(device, 1<<16)), 0, stream)
		case driverCall().MatchString(e.Name) && e.Correlation != 0:
			e.Kind, e.Lane.Kind = KindDriver, LaneAPI
			e.SetFactsOfName()
		}
	}
	c.list = slices.DeleteFunc(c.list, func(e Event) bool { return e.Kind >= numKinds })
	if repeated > 0 {
		c.header.Notes = append(c.header.Notes, strconv.Itoa(repeated)+" events of XLA's lines by operation and step are "+
			"left out: they show again the work that the streams have")
	}
}

// driverCall is the name of a function of CUDA's or HIP's API.
var driverCall = lazyregexp.New(`^(cu|cuda|hip)[A-Z]`)

// toolIs names the program that wrote the file, if its header does not.
func (c *chrome) toolIs(tool string) {
	if c.header.Tool == unknownTool && tool != "" {
		c.header.Tool = tool
	}
}

// details reads what XLA says of a kernel or copy: "regs:32 grid:1,1,1 block:128,1,1", "size:4096 async:1".
func (e *rawEvent) details(text string) {
	number := func(text string) int32 { return int32(min(max(parseInt([]byte(text)), 0), 1<<31-1)) }
	three := func(to *[3]int32, text string) {
		for i, n := range strings.SplitN(text, ",", 3) {
			to[i] = number(n)
		}
	}
	for field := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(field, ":")
		switch key {
		case "regs":
			e.Registers = number(value)
		case "static_shared":
			e.StaticShared = number(value)
		case "dynamic_shared":
			e.DynamicShared = number(value)
		case "size":
			e.Bytes = max(0, parseInt([]byte(value)))
		case "grid":
			three(&e.Grid, value)
		case "block":
			three(&e.Block, value)
		}
	}
}
