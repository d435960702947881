// Package nsys reads the sqlite exports of Nsight Systems.
package nsys

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gpt2scope/internal/humanize"
	"gpt2scope/internal/lazyregexp"
	"gpt2scope/traces"
)

// Values of NVTX_EVENTS.eventType.
const (
	nvtxCategory = 33
	nvtxMark     = 34
	nvtxPushPop  = 59
	nvtxStartEnd = 60
	nvtxtPush    = 70
	nvtxtStart   = 71
	nvtxDomain   = 75
)

// export is an sqlite export of Nsight Systems that is being read. The "SQLite Schema Reference" of its User Guide
// describes the tables. Their columns differ between versions, so the reader first asks which columns a table has.
type export struct {
	ctx     context.Context // ends the reading
	err     error           // the first, after which nothing is read
	header  traces.Header
	pages   pages
	tables  map[string]*table // by name, also without the number of a version at its end
	strings map[int64]string
	events  []traces.Event
	whats   traces.Interner
	what    traces.What // of the row that is being read

	devices   map[int64]int32 // of CUDA, by the id of a GPU
	variables map[string]int  // the ranks that environment variables name
}

// Read reads an export, whose events [traces.NewTrace] sorts. progress, if not nil, is told now and then how
// many bytes were read of how many. ctx ends the reading. An error says what the file is not, and does not name it.
func Read(ctx context.Context, path string, progress func(done, total int64)) (*traces.Header, []traces.Event, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot be read: %w", humanize.Cause(err))
	}
	defer f.Close()
	n := &export{ctx: ctx, pages: pages{file: f, progress: progress}, strings: map[int64]string{},
		devices: map[int64]int32{}, variables: map[string]int{}}
	if err := n.pages.open(); err != nil {
		return nil, nil, err
	}
	if n.read(); ctx.Err() != nil {
		return nil, nil, fmt.Errorf("was not read: %w", context.Cause(ctx))
	} else if n.err != nil {
		return nil, nil, fmt.Errorf("is not a readable export of Nsight Systems: %w", n.err)
	}
	return &n.header, n.events, nil
}

func (n *export) read() {
	n.tables, n.err = n.pages.tables()
	for _, name := range slices.Sorted(maps.Keys(n.tables)) {
		if base := tableVersion().ReplaceAllString(name, ""); n.tables[base] == nil {
			n.tables[base] = n.tables[name]
		}
	}
	switch {
	case n.err != nil:
		return
	case n.tables["StringTable"] != nil && n.tables["CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL"] != nil:
		n.err = errors.New("it is a database of nvprof, which is not read: record with nsys profile, then nsys export " +
			"--type sqlite")
		return
	case n.tables["StringIds"] == nil:
		n.err = errors.New("it has no table StringIds")
		return
	}
	const row = 48 // bytes of one in the file: growing would copy the events again and again
	n.events = make([]traces.Event, 0, n.pages.size/row)
	for _, step := range []func(){n.readStrings, n.readHeader, n.readDiagnostics, n.readRanges, n.readCalls,
		n.readKernels, n.readCopies, n.readSyncs, n.readGraphs, n.readOverhead, n.readMetrics, n.readMemory} {
		step()
	}
	traces.FindSteps(&n.header, n.events)
	n.header.Events = int64(len(n.events))
}

// tableVersion ends the name of a table whose columns changed, as in CUPTI_ACTIVITY_KIND_KERNEL_V2.
var tableVersion = lazyregexp.New(`_V\d+$`)

// has reports whether a table has a row that can be read.
func (n *export) has(table string) (found bool) {
	if t := n.tables[table]; t != nil {
		n.pages.rows(t.root, layout{key: -1}, nil, func(row) error {
			found = true
			return io.EOF
		})
	}
	return found
}

// rows calls each for every row of a table; an absent table has no rows. Columns whose
// name begins with '?' may be absent; they have no values then. After an error no table has rows.
func (n *export) rows(table string, each func(row), columns ...string) {
	t := n.tables[table]
	if t == nil || n.err != nil {
		return
	}
	at := layout{key: -1}
	for i, c := range t.columns {
		place := slices.IndexFunc(columns, func(name string) bool { return strings.TrimPrefix(name, "?") == c })
		if at.places = append(at.places, place); i == t.key {
			at.key = place
		}
	}
	for _, c := range columns {
		if c[0] != '?' && !slices.Contains(t.columns, c) {
			n.err = fmt.Errorf("table %s has no column %s", table, c)
			return
		}
	}
	done := 0
	err := n.pages.rows(t.root, at, make(row, len(columns)), func(r row) error {
		each(r)
		if done++; done%4096 == 0 {
			return n.ctx.Err()
		}
		return nil
	})
	if err != nil {
		n.err = fmt.Errorf("table %s: %w", table, err)
	}
}

// add keeps an event, or counts it as dropped if its time is impossible.
func (n *export) add(e traces.Event) {
	if e.Check() != nil {
		n.header.Drop("events with an impossible time", 1)
		return
	}
	e.SetFactsOfName()
	e.What = n.whats.Of(e.What)
	n.events = append(n.events, e)
}

// plain is traces.Plain for the row that is being read.
func (n *export) plain(kind traces.Kind, lane traces.Lane, name string, time, duration int64) traces.Event {
	n.what = traces.What{Name: name}
	return traces.Event{What: &n.what, Kind: kind, Lane: lane, Time: time, Duration: duration, Plan: -1, Step: -1}
}

// Global ids have the process in bits 24 to 47 and the thread below.
func processOf(global int64) int64 { return global >> 24 & (1<<24 - 1) }
func threadOf(global int64) int64  { return global & (1<<24 - 1) }

func (n *export) readStrings() {
	n.rows("StringIds", func(r row) {
		n.strings[r.int(0)], _ = r.text(1)
	}, "id", "value")
}

func (n *export) name(id int64) string {
	if s, ok := n.strings[id]; ok {
		return s
	}
	return "?"
}

func (n *export) readHeader() {
	h := &n.header
	*h = traces.Header{Version: traces.Version, Tool: "NVIDIA Nsight Systems", Recorder: traces.RecorderNsys,
		Clock: traces.Clock{Domain: "nsys session", Uncertainty: -1}, Versions: map[string]string{}}
	n.rows("META_DATA_EXPORT", func(r row) {
		name, _ := r.text(0)
		value, _ := r.text(1)
		switch name {
		case "EXPORT_PRODUCT_NAME":
			h.Tool = value
		case "EXPORT_PRODUCT_VERSION":
			h.Release = value
		case "EXPORT_SCHEMA_VERSION":
			h.Versions["schema"] = value
		}
	}, "name", "value")
	arguments := map[int]string{}
	graphMode, cuda, nvtx := "", "", ""
	n.rows("META_DATA_CAPTURE", func(r row) {
		name, _ := r.text(0)
		value, _ := r.text(1)
		if i, ok := strings.CutPrefix(name, "PROCESS_0:ARGUMENT_"); ok {
			if i, err := strconv.Atoi(i); err == nil && i >= 0 && i < 1000 {
				arguments[i] = value
			}
		}
		// Options are those of the program that nsys started, or since 2026 of none; the program may have started others.
		switch strings.TrimPrefix(name, "PROCESS_0:") {
		case "COMMAND":
			h.Command = []string{filepath.Base(value)}
		case "ENVIRONMENT_VARIABLE":
			n.environment(value)
		case "CUDA_GRAPH_TRACE_OPTIONS:MODE":
			graphMode = value
		case "COLLECT_CUDA_TRACE":
			cuda = value
		case "COLLECT_NVTX_TRACE":
			nvtx = value
		}
	}, "name", "value")
	for i := 0; i < len(arguments) && h.Command != nil; i++ {
		h.Command = append(h.Command, arguments[i])
	}
	lacks := func(is bool, what string) {
		if is {
			h.NotRecorded = append(h.NotRecorded, what)
		}
	}
	kernels, graphs := "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
	lacks(!n.has(kernels) && !n.has(graphs) &&
		(cuda == "false" || n.tables[kernels] == nil && n.tables[graphs] == nil), "kernels")
	lacks(n.tables["CUPTI_ACTIVITY_KIND_RUNTIME"] == nil, "API calls")
	lacks(!n.has("NVTX_EVENTS") && (nvtx == "false" || n.tables["NVTX_EVENTS"] == nil), "ranges (NVTX)")
	lacks(strings.EqualFold(graphMode, "graph"), "nodes of CUDA graphs (they need --cuda-graph-trace=node)")
	lacks(n.tables["GPU_METRICS"] == nil, "counters")
	lacks(true, "costs and ceilings")
	n.rows("TARGET_INFO_SESSION_START_TIME", func(r row) { h.Base = r.int(0) }, "utcEpochNs")
	n.rows("TARGET_INFO_GPU", func(r row) {
		d := traces.Device{ID: int(r.int32(0)), SMs: int(r.int32(2)), Memory: r.int(3), Bandwidth: r.int(4),
			ClockHz:    r.int(5),
			WarpsPerSM: int(r.int32(6)), BlocksPerSM: int(r.int32(7)), RegistersPerSM: int(r.int32(8)),
			SharedPerSM: int(r.int32(9))}
		d.Name, _ = r.text(1)
		if major, ok := r.maybe(10); ok {
			d.Compute = fmt.Sprintf("%d.%d", major, r.int(11))
		}
		if id, ok := r.maybe(12); ok {
			d.ID = int(min(max(id, 0), 1<<16))
		}
		d.UUID, _ = r.text(13)
		n.devices[r.int(0)] = int32(d.ID)
		h.Devices = append(h.Devices, d)
	}, "id", "?name", "?smCount", "?totalMemory", "?memoryBandwidth", "?clockRate", "?maxWarpsPerSm",
		"?maxBlocksPerSm", "?maxRegistersPerSm", "?maxShmemPerSm", "?computeMajor", "?computeMinor", "?cuDevice",
		"?uuid")
	threads := map[traces.Lane]string{}
	n.rows("ThreadNames", func(r row) {
		if g := r.int(1); g != 0 {
			threads[traces.Thread(processOf(g), threadOf(g))] = n.name(r.int(0))
		}
	}, "nameId", "globalTid")
	for l, name := range threads {
		h.Lanes = append(h.Lanes, traces.LaneName{Lane: l, Name: name})
	}
	slices.SortFunc(h.Lanes, func(a, b traces.LaneName) int {
		return cmp.Or(cmp.Compare(a.Lane.Process, b.Lane.Process), cmp.Compare(a.Lane.ID, b.Lane.ID))
	})
	n.readRanks()
}

// readRanges reads NVTX: ranges, marks, domains, categories.
func (n *export) readRanges() {
	type key struct{ process, id int64 }
	type categoryKey struct{ process, domain, id int64 }
	domains, categories := map[key]string{}, map[categoryKey]string{}
	text := func(r row) string {
		if s, ok := r.text(2); ok {
			return s
		}
		if id, ok := r.maybe(3); ok {
			return n.name(id)
		}
		return ""
	}
	columns := []string{"start", "end", "text", "?textId", "eventType", "?globalTid", "?domainId", "?category",
		"?int64Value", "?uint64Value", "?int32Value", "?uint32Value", "?color"}
	// Names may come after their first use.
	n.rows("NVTX_EVENTS", func(r row) {
		p := processOf(r.int(5))
		switch r.int(4) {
		case nvtxDomain:
			domains[key{p, r.int(6)}] = text(r)
		case nvtxCategory:
			categories[categoryKey{p, r.int(6), r.int(7)}] = text(r)
		}
	}, columns...)
	n.rows("NVTX_EVENTS", func(r row) {
		p := processOf(r.int(5))
		e := n.plain(traces.KindRange, traces.Thread(p, threadOf(r.int(5))), text(r), r.int(0), 0)
		e.Domain = domains[key{p, r.int(6)}]
		for i := 8; i < 12 && e.Value == 0; i++ {
			e.Value = float64(r.int(i))
		}
		switch r.int(4) {
		case nvtxPushPop, nvtxStartEnd, nvtxtPush, nvtxtStart:
			end, ok := r.maybe(1)
			e.Open = !ok
			if ok {
				e.Duration = end - e.Time
			}
			if e.Domain == traces.Domain {
				traces.OwnRange(&e, categories[categoryKey{p, r.int(6), r.int(7)}])
			}
			n.coloured(e.Name, r)
		case nvtxMark:
			e.Kind = traces.KindMark
		default:
			return
		}
		n.add(e)
	}, columns...)
}

// coloured notes the colour of a range, of which the file has alpha, red, green and blue.
func (n *export) coloured(name string, r row) {
	const most = 10000
	argb, ok := r.maybe(12)
	if h := &n.header; ok && argb != 0 && len(h.Colours) < most && h.Colours[name] == "" {
		if h.Colours == nil {
			h.Colours = map[string]string{}
		}
		h.Colours[name] = fmt.Sprintf("#%06x", argb&0xffffff)
	}
}

func (n *export) readCalls() {
	names := map[int64]string{}
	n.rows("CUPTI_ACTIVITY_KIND_RUNTIME", func(r row) {
		id := r.int(4)
		name, ok := names[id]
		if !ok {
			name = traces.CallName(n.name(id))
			names[id] = name
		}
		kind := traces.KindDriver
		if class, ok := r.maybe(5); ok && class == 0 || !ok && strings.HasPrefix(name, "cuda") {
			kind = traces.KindRuntime
		}
		g := r.int(2)
		e := n.plain(kind, traces.API(processOf(g), threadOf(g)), name, r.int(0), r.int(1)-r.int(0))
		e.Correlation = uint64(r.int(3))
		n.add(e)
	}, "start", "end", "globalTid", "correlationId", "nameId", "?eventClass")
}

// work makes an event of a stream from the values of workColumns.
func (n *export) work(kind traces.Kind, name string, r row) traces.Event {
	e := n.plain(kind, traces.Stream(processOf(r.int(6)), r.int32(2), r.int32(3), r.int(4)), name, r.int(0),
		r.int(1)-r.int(0))
	e.Correlation, e.Node = uint64(r.int(5)), uint64(r.int(7))
	return e
}

var workColumns = []string{"start", "end", "deviceId", "?contextId", "streamId", "?correlationId", "?globalPid",
	"?graphNodeId"}

func (n *export) readKernels() {
	n.rows("CUPTI_ACTIVITY_KIND_KERNEL", func(r row) {
		name := "?"
		for _, i := range []int{8, 9, 10} { // demangled, short, mangled
			if id, ok := r.maybe(i); ok {
				name = n.name(id)
				break
			}
		}
		e := n.work(traces.KindKernel, name, r)
		e.Registers, e.StaticShared, e.DynamicShared = r.int32(11), r.int32(12), r.int32(13)
		e.Grid = [3]int32{r.int32(14), r.int32(15), r.int32(16)}
		e.Block = [3]int32{r.int32(17), r.int32(18), r.int32(19)}
		n.add(e)
	}, append(slices.Clone(workColumns), "?demangledName", "?shortName", "?mangledName", "?registersPerThread",
		"?staticSharedMemory", "?dynamicSharedMemory",
		"?gridX", "?gridY", "?gridZ", "?blockX", "?blockY", "?blockZ")...)
}

func (n *export) readCopies() {
	n.rows("CUPTI_ACTIVITY_KIND_MEMCPY", func(r row) {
		name := traces.CopyName(r.int(9))
		from, hasFrom := r.maybe(10)
		to, hasTo := r.maybe(11)
		if hasFrom && hasTo {
			name += fmt.Sprintf(" (%s -> %s)", memoryName(from), memoryName(to))
		}
		e := n.work(traces.KindMemcpy, name, r)
		e.Bytes = r.int(8)
		n.add(e)
	}, append(slices.Clone(workColumns), "?bytes", "?copyKind", "?srcKind", "?dstKind")...)
	n.rows("CUPTI_ACTIVITY_KIND_MEMSET", func(r row) {
		name := "Memset"
		if kind, ok := r.maybe(9); ok {
			name += " (" + memoryName(kind) + ")"
		}
		e := n.work(traces.KindMemset, name, r)
		e.Bytes = r.int(8)
		n.add(e)
	}, append(slices.Clone(workColumns), "?bytes", "?memKind")...)
}

// memoryName names a kind of memory, which nsys numbers from 0 and CUPTI from 1.
func memoryName(kind int64) string { return traces.MemoryName(kind + 1) }

func (n *export) readSyncs() {
	n.rows("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", func(r row) {
		e := n.work(traces.KindSync, traces.SyncName(r.int(8)), r)
		e.Lane.Kind = traces.LaneSync
		if e.Lane.ID >= math.MaxInt32 { // it waits for all streams
			e.Lane.ID = -1
		}
		n.add(e)
	}, append(slices.Clone(workColumns), "?syncType")...)
}

// readGraphs reads how graph nodes were made, and the launches of graphs that nsys recorded as a whole.
func (n *export) readGraphs() {
	n.rows("CUDA_GRAPH_NODE_EVENTS", func(r row) {
		g := r.int(1)
		e := n.plain(traces.KindNode, traces.Thread(processOf(g), threadOf(g)), "node", r.int(0), 0)
		e.Node, e.Origin = uint64(r.int(2)), uint64(r.int(3))
		if e.Origin != 0 {
			e.Name = "node cloned"
		}
		n.add(e)
	}, "start", "globalTid", "graphNodeId", "?originalGraphNodeId")
	n.rows("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", func(r row) {
		n.add(n.work(traces.KindGraph, "graph", r))
	}, workColumns...)
}

func (n *export) readOverhead() {
	n.rows("PROFILER_OVERHEAD", func(r row) {
		g := r.int(2)
		n.add(n.plain(traces.KindOverhead, traces.Lane{Kind: traces.LaneOverhead, Device: -1,
			Process: processOf(g), ID: threadOf(g)}, n.name(r.int(3)), r.int(0), r.int(1)-r.int(0)))
	}, "start", "end", "globalTid", "nameId")
}

// readMetrics reads the samples of --gpu-metrics-devices: counters of the whole device, at a fixed
// frequency. The GPU of a sample is in the low byte of its type (GPU metrics reports of nsys
// stats). A metric that is always 0 says nothing and is left out.
func (n *export) readMetrics() {
	type metric struct{ kind, id int64 }
	names := map[metric]string{}
	n.rows("TARGET_INFO_GPU_METRICS", func(r row) {
		names[metric{r.int(0), r.int(1)}], _ = r.text(2)
	}, "typeId", "metricId", "metricName")
	columns, says := []string{"timestamp", "typeId", "metricId", "value"}, map[metric]bool{}
	n.rows("GPU_METRICS", func(r row) {
		if r.int(3) != 0 {
			says[metric{r.int(1), r.int(2)}] = true
		}
	}, columns...)
	n.rows("GPU_METRICS", func(r row) {
		at := metric{r.int(1), r.int(2)}
		if name, ok := names[at]; ok && says[at] {
			e := n.plain(traces.KindCounter, traces.Lane{Kind: traces.LaneCounter, Device: n.devices[at.kind&0xff]},
				name, r.int(0), 0)
			e.Value = float64(r.int(3))
			n.add(e)
		}
	}, columns...)
}

// readMemory sums the allocations of each GPU's own memory, of --cuda-memory-usage=true.
func (n *export) readMemory() {
	freed := map[int64]bool{1: true} // memoryOperationType of what is freed
	if n.tables["ENUM_CUDA_DEV_MEM_EVENT_OPER"] != nil {
		clear(freed)
		n.rows("ENUM_CUDA_DEV_MEM_EVENT_OPER", func(r row) {
			name, _ := r.text(1)
			name = strings.ToLower(name)
			freed[r.int(0)] = strings.Contains(name, "dealloc") || strings.Contains(name, "release") || strings.Contains(name, "free")
		}, "id", "name")
	}
	var changes []traces.Event
	n.rows("CUDA_GPU_MEMORY_USAGE_EVENTS", func(r row) {
		if kind, ok := r.maybe(4); ok && memoryName(kind) != "Device" {
			return
		}
		e := traces.Plain(traces.KindCounter, traces.Lane{Kind: traces.LaneCounter, Device: r.int32(1),
			Process: processOf(r.int(5))}, traces.MemoryAllocated, r.int(0), 0)
		if e.Value = float64(r.int(2)); freed[r.int(3)] {
			e.Value = -e.Value
		}
		changes = append(changes, e)
	}, "start", "deviceId", "bytes", "memoryOperationType", "?memKind", "?globalPid")
	for _, e := range traces.Held(changes) {
		n.add(e)
	}
}

// environment takes the rank from a variable of the profiled program, such as RANK="0". The
// launcher sets it for the program, whose children inherit it.
func (n *export) environment(variable string) {
	name, value, _ := strings.Cut(variable, "=")
	rank, err := strconv.Atoi(strings.Trim(value, `"`))
	if err == nil && rank >= 0 && slices.Contains(traces.RankVariables, name) {
		n.variables[name] = rank
	}
}

// readRanks finds the ranks of processes: those that MPI gave to threads (nsys profile -t mpi),
// those in the names of processes, and that of the environment.
func (n *export) readRanks() {
	add := func(process int64, rank int, source string) {
		n.header.Ranks = append(n.header.Ranks, traces.Rank{Process: process, Rank: rank, Source: source})
	}
	n.rows("MPI_RANKS", func(r row) {
		if rank, ok := r.maybe(1); ok && rank >= 0 && processOf(r.int(0)) != 0 {
			add(processOf(r.int(0)), int(min(rank, 1<<31-1)), "MPI_RANKS")
		}
	}, "globalTid", "rank")
	n.rows("PROCESSES", func(r row) {
		name, _ := r.text(1)
		if rank, ok := traces.RankInName(name); ok && processOf(r.int(0)) != 0 {
			add(processOf(r.int(0)), rank, "the name of the process")
		}
	}, "globalPid", "?name")
	for _, name := range traces.RankVariables {
		if rank, ok := n.variables[name]; ok {
			add(0, rank, "the variable "+name)
			break
		}
	}
}
