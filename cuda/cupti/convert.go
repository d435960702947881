package cupti

import (
	"cmp"

	"github.com/ianlancetaylor/demangle"

	"gpt2scope/traces"
)

// Decode returns what a tag of Push means: an index in the trace's plans, the step in that plan, and the id of the pass
// or range that it belongs to. -1 stands for no plan and no step, 0 for no range.
type Decode func(tag uint64) (plan, step int32, pass uint64)

// Convert makes events of records, in the order of the trace's file. base is the time of CUPTI's clock at which the
// trace's times are 0. Records without times are left out; [Recorder.Describe] counts them.
//
// A kernel, copy or set belongs to the step whose tag was pushed when its API call was made. A node of a graph belongs
// to the step whose tag was pushed when the node was captured, and to the pass whose tag was pushed when the graph was
// launched. All records must be given at once, since they come in no order.
func Convert(records []Record, base int64, decode Decode) []traces.Event {
	c := NewConverter(base, 0, 0)
	c.decode = decode
	events := append(c.Add(records), c.End()...)
	traces.Sort(events)
	return events
}

// Converter makes events of records that come in parts, as those of a spool.
type Converter struct {
	Base    int64 // time of CUPTI's clock at which the trace's are 0
	mono    int64 // of CLOCK_MONOTONIC
	decode  Decode
	process int64
	whats   traces.Interner
	open    map[rangeKey][]traces.Event // ranges, those pushed last at the end
	memory  []traces.Event              // changes of what a device holds

	tags    map[uint64]uint64  // by correlation id
	nodes   map[uint64]*Record // by their id
	devices map[uint32]uint32  // of contexts
	names   map[string]string  // demangled
}

// rangeKey is a thread and domain, whose pushes nest, or the id of a range that was started.
type rangeKey struct {
	thread uint32
	domain string
	id     uint64
}

// NewConverter makes a converter of the records of a process, 0 for that of the first record. base and mono are the
// times of CUPTI's clock and of CLOCK_MONOTONIC at which the trace's are 0.
func NewConverter(base, mono, process int64) *Converter {
	return &Converter{Base: base, mono: mono, process: process, open: map[rangeKey][]traces.Event{},
		tags: map[uint64]uint64{}, nodes: map[uint64]*Record{},
		devices: map[uint32]uint32{}, names: map[string]string{}}
}

// Add converts records, in their order.
func (c *Converter) Add(records []Record) []traces.Event {
	c.index(records)
	events := make([]traces.Event, 0, len(records))
	for i := range records {
		if e, ok := c.event(&records[i]); ok {
			e.What = c.whats.Of(e.What)
			events = append(events, e)
		}
	}
	return events
}

// Forget drops what only End would tell of memory.
func (c *Converter) Forget() { c.memory = nil }

// End returns the events that are known only when all records have been added: the memory that devices hold, and the
// ranges that are still open.
func (c *Converter) End() []traces.Event {
	events := traces.Held(c.memory)
	for _, open := range c.open {
		for _, e := range open {
			e.Open = true
			events = append(events, e)
		}
	}
	c.memory, c.open = nil, map[rangeKey][]traces.Event{}
	return events
}

// nvtx makes the event of a range that ends here, or of a mark.
func (c *Converter) nvtx(r *Record) (traces.Event, bool) {
	key := rangeKey{thread: r.Thread, domain: r.Domain}
	if r.Detail == rangeStart || r.Detail == rangeEnd {
		key = rangeKey{id: r.Correlation}
	}
	switch r.Detail {
	case rangePop, rangeEnd:
		open := c.open[key]
		if len(open) == 0 {
			return traces.Event{}, false
		}
		e := open[len(open)-1]
		e.Duration = r.Start - c.mono - e.Time
		if c.open[key] = open[:len(open)-1]; key.id != 0 {
			delete(c.open, key)
		}
		return e, true
	}
	e := traces.Plain(traces.KindRange, traces.Thread(int64(r.Process), int64(r.Thread)), r.Name, r.Start-c.mono, 0)
	e.SetFactsOfName()
	if e.Domain = r.Domain; r.Tagged {
		e.Value = float64(int64(r.External))
	}
	if r.Detail == rangeMark {
		e.Kind = traces.KindMark
		return e, true
	}
	if r.Domain == traces.Domain {
		traces.OwnRange(&e, r.Category)
	}
	c.open[key] = append(c.open[key], e)
	return e, false
}

// index notes what other records refer to.
func (c *Converter) index(records []Record) {
	for i := range records {
		r := &records[i]
		if c.process == 0 {
			c.process = int64(r.Process)
		}
		switch r.Kind {
		case KindExternal:
			c.tags[r.Correlation] = r.External
		case KindNode:
			// Some versions report a node of an instantiated graph twice, as made and as cloned: the one with its origin counts.
			if old := c.nodes[r.Node]; old == nil || old.Origin == 0 {
				node := *r // the part is not kept
				c.nodes[r.Node] = &node
			}
		case KindKernel, KindMemcpy, KindMemcpyPeer, KindMemset, KindGraph:
			c.devices[r.Context] = r.Device
		}
	}
}

// event makes the event of a record, and reports whether it has one.
func (c *Converter) event(r *Record) (traces.Event, bool) {
	if r.timeless() {
		return traces.Event{}, false
	}
	time, duration := r.Start-c.Base, r.End-r.Start
	var e traces.Event
	switch r.Kind {
	case KindKernel:
		e = traces.Plain(traces.KindKernel, c.stream(r), c.name(r.Name, kernelName), time, duration)
		e.Grid, e.Block = r.Grid, r.Block
		e.Registers, e.StaticShared, e.DynamicShared = int32(r.Registers), r.StaticShared, r.DynamicShared
	case KindMemcpy, KindMemcpyPeer:
		name := traces.CopyName(int64(r.CopyKind)) + " (" + memoryName(r.From) + " -> " + memoryName(r.To) + ")"
		e = traces.Plain(traces.KindMemcpy, c.stream(r), name, time, duration)
	case KindMemset:
		e = traces.Plain(traces.KindMemset, c.stream(r), "Memset ("+memoryName(r.To)+")", time, duration)
	case KindRuntime:
		e = traces.Plain(traces.KindRuntime, traces.API(int64(r.Process), int64(r.Thread)), c.name(r.Name, traces.CallName), time,
			duration)
	case KindDriver:
		e = traces.Plain(traces.KindDriver, traces.API(int64(r.Process), int64(r.Thread)), c.name(r.Name, traces.CallName), time, duration)
	case KindSync:
		e = traces.Plain(traces.KindSync, c.stream(r), traces.SyncName(int64(r.Detail)), time, duration)
		e.Lane.Kind, e.Lane.Device = traces.LaneSync, int32(c.devices[r.Context])
		if r.Stream == AllStreams {
			e.Lane.ID = -1
		}
	case KindOverhead:
		e = traces.Plain(traces.KindOverhead, traces.Lane{Kind: traces.LaneOverhead, Device: -1, ID: int64(r.Thread),
			Process: cmp.Or(int64(r.Process), c.process)}, cmp.Or(overheadNames[r.Detail], "Overhead"), time, duration)
	case KindNode:
		e = traces.Plain(traces.KindNode, traces.Thread(int64(r.Process), int64(r.Thread)), "node", time, 0)
		if e.Origin = r.Origin; r.Origin != 0 {
			e.Name = "node cloned"
		}
	case KindGraph:
		e = traces.Plain(traces.KindGraph, c.stream(r), "graph", time, duration)
	case KindMemory:
		if memoryName(r.From) == "Device" {
			e = traces.Plain(traces.KindCounter, traces.Lane{Kind: traces.LaneCounter, Device: int32(r.Device),
				Process: c.process}, traces.MemoryAllocated, time, 0)
			if e.Value = float64(r.Bytes); r.Detail == 2 {
				e.Value = -e.Value
			}
			c.memory = append(c.memory, e)
		}
		return e, false
	case KindRange:
		return c.nvtx(r)
	default:
		return traces.Event{}, false
	}
	e.Correlation, e.Node, e.Bytes = r.Correlation, r.Node, int64(min(r.Bytes, 1<<62))
	e.SetFactsOfName()
	c.attribute(&e, r)
	return e, true
}

// attribute fills in the step and pass that an event belongs to, by tags.
func (c *Converter) attribute(e *traces.Event, r *Record) {
	if c.decode == nil {
		return
	}
	if tag, ok := c.tags[r.Correlation]; ok && r.Correlation != 0 {
		e.Plan, e.Step, e.Parent = c.decode(tag)
	}
	if r.Node == 0 {
		return
	}
	// The step of a node is that of its capture; the launch knows of passes only.
	e.Step = -1
	if made := c.captured(r.Node); made != nil && made.Tagged {
		e.Plan, e.Step, _ = c.decode(made.External)
	}
}

// captured returns the captured node that a node was cloned from, nil if it is not known.
func (c *Converter) captured(id uint64) *Record {
	for range maxFollowedNode { // damaged records could form a ring
		made := c.nodes[id]
		if made == nil || made.Origin == 0 || made.Origin == id {
			return made
		}
		id = made.Origin
	}
	return nil
}

func (c *Converter) stream(r *Record) traces.Lane {
	return traces.Stream(c.process, int32(r.Device), int32(r.Context), int64(r.Stream))
}

// kernelName returns the name as in the source, with its types.
func kernelName(mangled string) string { return cmp.Or(demangle.Filter(mangled), "?") }

func memoryName(kind uint8) string { return traces.MemoryName(int64(kind)) }

// name returns what a function makes of a name, which it does once for each.
func (c *Converter) name(full string, of func(string) string) string {
	name, ok := c.names[full]
	if !ok {
		name = of(full)
		c.names[full] = name
	}
	return name
}
