package traces

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode"
)

// Version is the version of the record and of the file. Readers take no other.
const Version = 2

// Counters of the memory that a program holds on a device, in bytes: what it has allocated, what PyTorch's allocator
// has reserved for it, and what all programs together use.
const (
	MemoryAllocated = "memory allocated"
	MemoryReserved  = "memory reserved"
	MemoryUsed      = "memory used"
)

// IsMemory reports whether a counter of this name is one of memory.
func IsMemory(counter string) bool {
	return counter == MemoryAllocated || counter == MemoryReserved || counter == MemoryUsed
}

// Domain is the NVTX domain of gpt2scope's own ranges. In an export of Nsight Systems, the
// names and categories of these ranges identify passes and steps.
const Domain = "gpt2scope"

// Kind is the kind of an event.
type Kind uint8

const (
	KindRange    Kind = iota // a named range
	KindPass                 // a pass of the model
	KindStep                 // a step of the plan; on a stream, from the first to the last of its kernels
	KindOp                   // an operator of a framework, such as aten::linear
	KindRuntime              // a call of the CUDA runtime API
	KindDriver               // a call of the CUDA driver API
	KindKernel               // a kernel
	KindMemcpy               // a copy
	KindMemset               // a set
	KindSync                 // a synchronisation, from the activity records of the device
	KindGraph                // a graph launch, if the nodes of the graph are not recorded
	KindNode                 // the creation of a graph node, by capture or by cloning (instantiation)
	KindOverhead             // time that the recorder itself took
	KindMark                 // a moment
	KindCounter              // a value that holds from this time on
	numKinds
)

// kinds are the names of kinds in the file. Categories are those of Kineto, if it has one.
var kinds = [numKinds]struct{ name, category string }{
	KindRange:    {"range", "user_annotation"},
	KindPass:     {"pass", "user_annotation"},
	KindStep:     {"step", "user_annotation"},
	KindOp:       {"op", "cpu_op"},
	KindRuntime:  {"runtime call", "cuda_runtime"},
	KindDriver:   {"driver call", "cuda_driver"},
	KindKernel:   {"kernel", "kernel"},
	KindMemcpy:   {"memcpy", "gpu_memcpy"},
	KindMemset:   {"memset", "gpu_memset"},
	KindSync:     {"sync", "cuda_sync"},
	KindGraph:    {"graph", "cuda_graph"},
	KindNode:     {"graph node", "graph_node"},
	KindOverhead: {"overhead", "overhead"},
	KindMark:     {"mark", "mark"},
	KindCounter:  {"counter", "counter"},
}

// String gives the kind's name, such as "kernel".
func (k Kind) String() string {
	if k < numKinds {
		return kinds[k].name
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// IsGPU reports whether events of the kind are work of a device.
func (k Kind) IsGPU() bool {
	return k == KindKernel || k == KindMemcpy || k == KindMemset || k == KindGraph
}

// IsCall reports whether events of the kind are API calls.
func (k Kind) IsCall() bool { return k == KindRuntime || k == KindDriver }

// IsRange reports whether events of the kind can contain other events of their thread.
func (k Kind) IsRange() bool { return k == KindRange || k == KindPass || k == KindStep || k == KindOp }

// LaneKind is the kind of a lane.
type LaneKind uint8

const (
	LaneThread   LaneKind = iota // the ranges of a host thread
	LaneAPI                      // the API calls of a host thread
	LaneStream                   // the work of a stream
	LaneSync                     // the synchronisations of a stream
	LaneOverhead                 // what the recorder did on a host thread
	LaneCounter                  // counters of a device, or of a process if Device is -1
)

// Lane is where an event happened. It is comparable.
type Lane struct {
	Kind    LaneKind
	Device  int32 // -1 on the host
	Context int32 // CUDA context; 0 if the source has none
	Process int64 // id of the process; 0 if the source has none
	ID      int64 // id of the thread or stream; -1 for all streams of a context
}

// Thread returns the lane of a thread's ranges.
func Thread(process, thread int64) Lane {
	return Lane{Kind: LaneThread, Device: -1, Process: process, ID: thread}
}

// API returns the lane of a thread's API calls.
func API(process, thread int64) Lane {
	return Lane{Kind: LaneAPI, Device: -1, Process: process, ID: thread}
}

// Stream returns the lane of a stream's work.
func Stream(process int64, device, context int32, stream int64) Lane {
	return Lane{Kind: LaneStream, Device: device, Context: context, Process: process, ID: stream}
}

// String names the lane for people.
func (l Lane) String() string {
	switch l.Kind {
	case LaneThread:
		return fmt.Sprintf("thread %d", l.ID)
	case LaneAPI:
		return fmt.Sprintf("API of thread %d", l.ID)
	case LaneStream:
		return fmt.Sprintf("stream %d", l.ID)
	case LaneSync:
		if l.ID < 0 {
			return "synchronisation"
		}
		return fmt.Sprintf("synchronisation of stream %d", l.ID)
	case LaneOverhead:
		return fmt.Sprintf("recorder on thread %d", l.ID)
	}
	return "counters"
}

// Wait is what an API call waits for while it runs.
type Wait uint8

const (
	WaitNone Wait = iota // it returns when its work is queued
	WaitSync             // the work of a stream, event or device, by sleeping or polling
	WaitCopy             // its own copy or set
)

// waitNames are the waits in the file.
var waitNames = []string{"", "sync", "copy"}

// What is what happened, without when and where. The events of a file share those that are equal, so that each name is in
// memory once: it is not changed after reading.
type What struct {
	Name   string
	Domain string // of a range: who named it, for example its NVTX domain
	Inputs string // of an operator: the shapes of its inputs, as JSON: "[[1,128,768],[]]"

	Grid, Block   [3]int32 // of a kernel
	Registers     int32    // per thread
	StaticShared  int32    // bytes per block
	DynamicShared int32    // bytes per block
	Occupancy     float32  // estimated achieved occupancy in percent; 0 if not known

	// DividedEvery is n if the time of a kernel is a part of the time of several, divided among
	// them as in each n-th pass, which times them apart; 0 if the kernel was timed itself.
	DividedEvery int32

	// Bounded marks a kernel that wrote no stamps, such as a library's. Its time is from the
	// end of the kernel before it to the start of the kernel after it.
	Bounded bool

	Counters *Counters // of a kernel; nil if none were measured
	Inside   *Inside   // of a step inside a kernel: what the SMs did; nil if it is not known
	Bytes    int64     // of a copy or set
	Origin   uint64    // of a cloned node of a graph: the one that it was cloned from
}

// Interner has one *What for those that are equal. Its zero value has none.
type Interner struct {
	all    map[What]*What
	latest map[string]*What // of a name: most often the next one too
}

// Of returns the one for w.
func (n *Interner) Of(w *What) *What {
	if one := n.latest[w.Name]; one != nil && *one == *w {
		return one
	}
	if n.all == nil {
		n.all, n.latest = map[What]*What{}, map[string]*What{}
	}
	one := n.all[*w]
	if one == nil {
		one = new(What)
		*one = *w
		n.all[*w] = one
	}
	n.latest[w.Name] = one
	return one
}

// Change changes the What of an event, and not that of the others that share it.
func (n *Interner) Change(e *Event, change func(*What)) {
	w := *e.What
	change(&w)
	e.What = n.Of(&w)
}

// Event is one record. Fields that a source does not give are zero, unless their comment names another value.
type Event struct {
	*What              // never nil; [Plain] makes one
	Time        int64  // ns after the header's base; may be negative
	Duration    int64  // ns
	Lane        Lane   // where
	Correlation uint64 // shared by an API call and the work that it caused; unique in a process

	ID     uint64 // of a range: its own
	Parent uint64 // ID of the range around the event; of work of the GPU: around its launch
	Plan   int32  // index in Header.Plans, -1 for none
	Step   int32  // of the step in that plan, -1 for none

	Kind   Kind // what happened
	Open   bool // a range that had not ended when recording did; Duration is 0
	Wait   Wait // of an API call
	WarmUp bool // of a range: everything in it is warm-up

	Node     uint64  // graph node that ran, or was made
	External uint64  // of an operator, and of the calls and work that it caused: its id in PyTorch's profiler
	Value    float64 // of a counter; of a range: the payload; of an operator: its number in PyTorch's autograd
}

// End returns the time at which the event ended.
func (e *Event) End() int64 { return e.Time + e.Duration }

// MaxTime bounds times and durations in ns, so that sums of a few do not overflow: 73 years.
const MaxTime = 1 << 61

// Check returns an error for an event that a file cannot hold: of an unknown kind, with a
// time beyond [MaxTime], or with a value that is not finite.
func (e *Event) Check() error {
	switch {
	case e.What == nil:
		return errors.New("an event has no name")
	case e.Kind >= numKinds:
		return fmt.Errorf("event %q has the unknown kind %d", e.Name, e.Kind)
	case e.Time < -MaxTime || e.Time > MaxTime:
		return fmt.Errorf("event %q has time %d ns, which is out of range", e.Name, e.Time)
	case e.Duration < 0 || e.Duration > MaxTime:
		return fmt.Errorf("event %q has duration %d ns, which is out of range", e.Name, e.Duration)
	case int(e.Wait) >= len(waitNames):
		return fmt.Errorf("event %q has the unknown wait %d", e.Name, e.Wait)
	case math.IsNaN(e.Value) || math.IsInf(e.Value, 0):
		return fmt.Errorf("event %q has a value that is not finite", e.Name)
	}
	return nil
}

// Plain returns an event of no step: Plan and Step are -1.
func Plain(kind Kind, lane Lane, name string, time, duration int64) Event {
	return Event{What: &What{Name: name}, Kind: kind, Lane: lane, Time: time, Duration: duration, Plan: -1, Step: -1}
}

// Compare orders events as in the file: by time; of events that begin together, the
// longest comes first, because it contains the others.
func Compare(a, b *Event) int {
	if c := cmp.Compare(a.Time, b.Time); c != 0 {
		return c
	}
	if a.Open != b.Open {
		if a.Open {
			return -1
		}
		return 1
	}
	if c := cmp.Compare(b.Duration, a.Duration); c != 0 {
		return c
	}
	return cmp.Compare(a.Kind, b.Kind) // a pass, its step, the kernel
}

// Sort puts events in the order of the file, and keeps that of equal ones. Sources have a few lists, each nearly in
// order: it merges what is in order already, and moves each event once.
func Sort(events []Event) {
	n := len(events)
	var ends []int // of the parts that are in order
	for i := 1; i <= n; i++ {
		if i == n || Compare(&events[i-1], &events[i]) > 0 {
			ends = append(ends, i)
		}
	}
	if len(ends) < 2 {
		return
	}
	from, merged := make([]int32, n), make([]int32, n) // where the event at each place comes from
	for i := range from {
		from[i] = int32(i)
	}
	for len(ends) > 1 {
		begin, kept := 0, ends[:0]
		for i := 0; i < len(ends); i += 2 {
			middle, end := ends[i], ends[min(i+1, len(ends)-1)]
			a, b := begin, middle
			for at := begin; at < end; at++ {
				if b == end || a < middle && Compare(&events[from[a]], &events[from[b]]) <= 0 {
					merged[at] = from[a]
					a++
				} else {
					merged[at] = from[b]
					b++
				}
			}
			begin, kept = end, append(kept, end)
		}
		ends, from, merged = kept, merged, from
	}
	for start := range from { // the places form rings
		if from[start] < 0 {
			continue
		}
		first := events[start]
		for at := start; ; {
			next := int(from[at])
			from[at] = -1
			if next == start {
				events[at] = first
				break
			}
			events[at], at = events[next], next
		}
	}
}

// LastID returns the highest ID of events.
func LastID(events []Event) (last uint64) {
	for i := range events {
		last = max(last, events[i].ID)
	}
	return last
}

// The recorders that a header can name.
const (
	RecorderStamps = "stamps" // own kernels write their start and end
	RecorderCUPTI  = "cupti"  // CUDA's activity records
	RecorderHost   = "host"   // one event per step and worker thread of the CPU
	RecorderNsys   = "nsys"   // an export of Nsight Systems
	RecorderKineto = "kineto" // PyTorch's profiler
	RecorderChrome = "chrome" // Chrome trace JSON of another source
)

// Header has the facts about a whole trace.
type Header struct {
	Version  int               `json:"version"`           // of the format
	Tool     string            `json:"tool"`              // who recorded: "gpt2scope", "NVIDIA Nsight Systems"
	Release  string            `json:"release,omitempty"` // its version
	Recorder string            `json:"recorder"`          // how: one of the Recorder constants
	Base     int64             `json:"base"`              // ns since 1970 UTC; all times are relative to it
	Clock    Clock             `json:"clock"`
	Process  int64             `json:"process,omitempty"` // of events that name none
	Events   int64             `json:"events,omitempty"`  // how many there are; 0 if unknown when writing began
	Ranks    []Rank            `json:"ranks,omitempty"`   // of processes, if the source says it
	Command  []string          `json:"command,omitempty"`
	Devices  []Device          `json:"devices,omitempty"`
	Lanes    []LaneName        `json:"lanes,omitempty"` // names of lanes that have one
	Plans    []Plan            `json:"plans,omitempty"`
	Ceilings []Ceiling         `json:"ceilings,omitempty"`
	DType    string            `json:"dtype,omitempty"` // of the matrix products: "f32", "bf16"
	Overhead []Overhead        `json:"overhead,omitempty"`
	Energy   []Energy          `json:"energy,omitempty"`
	Drafts   Drafts            `json:"drafts,omitzero"`
	Versions map[string]string `json:"versions,omitempty"` // of driver, libraries, exports

	// Colours are those that the program gave its ranges, by name: "#1d91c0".
	Colours map[string]string `json:"colours,omitempty"`

	// Inferred is the confidence, above 0 and at most 1, with which the passes and steps were
	// found in kernels that named none; 0 if the source named them.
	Inferred float64  `json:"inferred,omitempty"`
	Against  []string `json:"against,omitempty"` // what argues against the stages that were inferred

	// CostsFrom says in words what the costs of inferred steps follow from, and what is not known.
	CostsFrom []string `json:"costsFrom,omitempty"`

	// NotRecorded says in words what this recording does not record, and Incomplete what
	// it should have recorded but lost. If Incomplete is not empty, shares mislead.
	NotRecorded []string `json:"notRecorded,omitempty"`
	Incomplete  []string `json:"incomplete,omitempty"`

	// Notes say in words what else was found about the completeness of the recording. They do not make shares mislead.
	Notes []string `json:"notes,omitempty"`

	// Dropped counts lost records by their kind. NotRecorded, Incomplete and Dropped are
	// final only after all events have been read.
	Dropped map[string]int64 `json:"dropped,omitempty"`

	// Unknown counts the events that were left out because no dialect has their category or track, by its name. Mended
	// counts records that could not be as they stood, by what was done to them; shares do not mislead for it.
	Unknown map[string]int64 `json:"unknown,omitempty"`
	Mended  map[string]int64 `json:"mended,omitempty"`
}

// Clock describes the clock of a trace.
type Clock struct {
	Domain string `json:"domain"` // "cupti", "globaltimer", "monotonic", ...

	// Uncertainty is the largest difference in ns between the times of host and device
	// for one moment; -1 if the source does not say.
	Uncertainty int64 `json:"uncertainty"`

	// Aligned says in words how the clocks of several files were aligned; "" if all events are of one clock.
	Aligned string `json:"aligned,omitempty"`
}

// Device describes a GPU. Zero fields are not known.
type Device struct {
	ID             int    `json:"id"`
	Name           string `json:"name"`
	Compute        string `json:"compute,omitempty"` // capability: "9.0"
	SMs            int    `json:"sms,omitempty"`
	Memory         int64  `json:"memory,omitempty"`         // bytes
	Bandwidth      int64  `json:"bandwidth,omitempty"`      // bytes/s, as the driver states it
	ClockHz        int64  `json:"clockHz,omitempty"`        // highest SM clock
	WarpsPerSM     int    `json:"warpsPerSM,omitempty"`     // at most
	BlocksPerSM    int    `json:"blocksPerSM,omitempty"`    // at most
	RegistersPerSM int    `json:"registersPerSM,omitempty"` // 32-bit
	SharedPerSM    int    `json:"sharedPerSM,omitempty"`    // bytes
	UUID           string `json:"-"`                        // tells GPUs of several machines apart; files do not have it
}

// LaneName names a lane.
type LaneName struct {
	Lane Lane   `json:"lane"`
	Name string `json:"name"`
}

// Plan is the list of steps of a kind of pass.
type Plan struct {
	Phase  string `json:"phase"`            // "prefill", "decode step"
	Batch  int    `json:"batch,omitempty"`  // B
	Tokens int    `json:"tokens,omitempty"` // T
	Past   int    `json:"past,omitempty"`   // tokens in the cache, to which the costs refer
	Padded int    `json:"padded,omitempty"` // tokens per sequence that run if a prompt is padded; 0 if it is not
	Steps  []Step `json:"steps"`
}

// Step is a step of a plan. Its tag is its index.
type Step struct {
	Tag   int    `json:"tag"`
	Name  string `json:"name"`  // the stages that it covers, joined by '+'
	Op    string `json:"op"`    // "Linear"; "" if not known
	Layer int    `json:"layer"` // -1 outside the layers
	Slot  int    `json:"slot"`  // place in the run order, -1 outside the layers
	FLOPs int64  `json:"flops"` // least work; 0 if not known
	Bytes int64  `json:"bytes"` // least traffic; 0 if not known

	// The floor also needs how many of the bytes are activations, and the type in which
	// the step multiplies, "f32" or "bf16".
	Activations int64  `json:"activations,omitempty"`
	Multiply    string `json:"multiply,omitempty"`

	// What each token in the cache beyond Plan.Past adds to FLOPs and Bytes. The Value of
	// a pass' event is the number of tokens in the cache before it.
	FLOPsPerPast int64 `json:"flopsPerPast,omitempty"`
	BytesPerPast int64 `json:"bytesPerPast,omitempty"`
}

// CostAt returns the least work and traffic of the step in a pass of the plan that begins
// with past tokens in the cache.
func (s Step) CostAt(p *Plan, past int) (flops, bytes int64) {
	more := int64(past - p.Past)
	return s.FLOPs + more*s.FLOPsPerPast, s.Bytes + more*s.BytesPerPast
}

// Ceiling is the most that a device was measured to do.
type Ceiling struct {
	Device int     `json:"device"` // -1 for the CPU
	Name   string  `json:"name"`   // "read", "copy"; of matrix products the type: "f32", "bf16"
	Unit   string  `json:"unit"`   // "GB/s" (1e9), "TFLOP/s" (1e12)
	Value  float64 `json:"value"`
	Size   int64   `json:"size,omitempty"` // bytes: the largest data for which a bandwidth holds; 0 for memory
}

// Overhead is the cost of recording: the time of a pass with recording, and in a process that never recorded.
type Overhead struct {
	Phase    string  `json:"phase"`    // as in Plan, or OverheadToken
	Baseline float64 `json:"baseline"` // ns, median or mean of passes
	Recorded float64 `json:"recorded"` // ns, the same of the recorded passes
	Passes   int     `json:"passes"`   // of the baseline
}

// OverheadToken is the phase of an overhead that is of a token, where passes verify drafts and so make several.
const OverheadToken = "token"

// fewPasses is the least number of passes for a comparison: medians of fewer passes in two
// processes differ by more than recording costs.
const fewPasses = 24

// Longer returns by how many percent recording made a pass longer, negative if the pass was
// shorter. ok is false if that was not measured, or on too few passes.
func (l *Overhead) Longer() (percent float64, ok bool) {
	if !(l.Baseline > 0) || !(l.Recorded > 0) || l.Passes < fewPasses {
		return 0, false
	}
	percent = 100 * (l.Recorded/l.Baseline - 1)
	return percent, !math.IsInf(percent, 0) && !math.IsNaN(percent)
}

// LongerText says by how much recording made a pass longer. If the pass was shorter, that was chance.
func LongerText(percent float64) string {
	if percent <= 0 {
		return "no longer"
	}
	return fmt.Sprintf("%.1f %% longer", percent)
}

// Drafts are guesses of tokens that passes of several tokens verified: of speculation.
type Drafts struct {
	Accepted int `json:"accepted"`
	Dropped  int `json:"dropped"` // wrong, or after a wrong one
}

// Energy is the energy that a device used while tokens were generated.
type Energy struct {
	Device     int     `json:"device"`
	What       string  `json:"what"`       // "decode", "prefill", "run"
	Millijoule float64 `json:"millijoule"` // in all
	Tokens     int     `json:"tokens"`
	Resolution float64 `json:"resolution"` // mJ: the possible error, from the step size of the counter
	Source     string  `json:"source"`     // "total energy counter", "power samples"
}

// Drop counts a lost record.
func (h *Header) Drop(what string, n int64) { count(&h.Dropped, what, n) }

func (h *Header) unknown(what string, n int64) { count(&h.Unknown, what, n) }
func (h *Header) mend(what string, n int64)    { count(&h.Mended, what, n) }

func count(m *map[string]int64, what string, n int64) {
	if n == 0 {
		return
	}
	if *m == nil {
		*m = map[string]int64{}
	}
	(*m)[what] += n
}

// Step returns the step that an event belongs to, and whether it belongs to one.
func (h *Header) Step(e *Event) (Step, bool) {
	if e.Plan < 0 || int(e.Plan) >= len(h.Plans) {
		return Step{}, false
	}
	steps := h.Plans[e.Plan].Steps
	if e.Step < 0 || int(e.Step) >= len(steps) {
		return Step{}, false
	}
	return steps[e.Step], true
}

// Run is one run of a step: the step of a plan in a pass, which is named by the ID of its range.
type Run struct {
	Pass       uint64
	Plan, Step int32
}

// Run returns the run of the event's step in a pass.
func (e *Event) Run(pass uint64) Run { return Run{pass, e.Plan, e.Step} }

// PhaseOf names the kind of pass that an event belongs to, "" for none.
func (h *Header) PhaseOf(e *Event) string {
	if e.Plan >= 0 && int(e.Plan) < len(h.Plans) {
		return h.Plans[e.Plan].Phase
	}
	return ""
}

// ProcessOf returns the process of an event, 0 if not known.
func (h *Header) ProcessOf(e *Event) int64 { return cmp.Or(e.Lane.Process, h.Process) }

// ThreadID identifies a thread: a process and the id of the thread in it.
type ThreadID [2]int64

// ThreadOf returns the thread of an event of the host.
func (h *Header) ThreadOf(e *Event) ThreadID { return ThreadID{h.ProcessOf(e), e.Lane.ID} }

// Correlation identifies an API call and the work that it caused.
type Correlation struct {
	Process int64
	ID      uint64
}

// Correlate returns the correlation of an event; its ID is 0 if it has none.
func (h *Header) Correlate(e *Event) Correlation { return Correlation{h.ProcessOf(e), e.Correlation} }

// Device returns the facts about a GPU, or an empty Device if the header has none. If all its GPUs are alike, one that
// it does not have is like them: ROCm's records number the GPUs after the CPUs.
func (h *Header) Device(id int32) *Device {
	alike := len(h.Devices) > 0
	for i := range h.Devices {
		if h.Devices[i].ID == int(id) {
			return &h.Devices[i]
		}
		d := h.Devices[i]
		d.ID, d.UUID = h.Devices[0].ID, h.Devices[0].UUID
		alike = alike && d == h.Devices[0]
	}
	if alike {
		return &h.Devices[0]
	}
	return &Device{}
}

// check returns an error for a header that this package cannot use.
func (h *Header) check() error {
	if h.Version != Version {
		return fmt.Errorf("the trace has format version %d; this program reads version %d", h.Version, Version)
	}
	for _, p := range h.Plans {
		for i, s := range p.Steps {
			if s.Tag != i {
				return fmt.Errorf("the plan of %q is damaged: step %d has tag %d", p.Phase, i, s.Tag)
			}
		}
	}
	return nil
}

// Describe says in a line where the trace comes from.
func (h *Header) Describe() string {
	parts := []string{h.Tool}
	if h.Release != "" {
		parts[0] += " " + h.Release
	}
	parts = append(parts, "recorder "+h.Recorder)
	for _, d := range h.Devices {
		parts = append(parts, strings.Join(strings.FieldsFunc(d.Name, unicode.IsControl), " "))
	}
	if h.Inferred > 0 {
		parts = append(parts, fmt.Sprintf("stages inferred, confidence %.2f", h.Inferred))
	}
	return strings.Join(parts, ", ")
}
