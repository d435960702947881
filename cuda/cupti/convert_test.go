package cupti_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"testing"

	"gpt2scope/cuda/cupti"
	"gpt2scope/cuda/cupti/testdata/fake"
	"gpt2scope/internal/require"
	"gpt2scope/traces"
)

// A tag as an engine could make it: phase, step + 1, pass.
func tagOf(phase, step int32, pass uint64) uint64 {
	return uint64(phase)<<56 | uint64(step+1)<<32 | pass
}

func decode(tag uint64) (phase, step int32, pass uint64) {
	return int32(tag >> 56), int32(tag>>32&0xffffff) - 1, tag & 0xffffffff
}

// gpu stands for an engine and a GPU: a step launches kernels, and they end in another order than they began.
type gpu struct {
	c    *fake.Control
	now  int64
	late []cupti.Record // work whose records come later
	rand *rand.Rand
}

// steps are those of the plan of phase 1, by the kernels that each launches.
var steps = [][]string{{"embed"}, {"norm", "gemm_a", "gemm_b"}, {"attention", "combine"}, {"gemm_a"}, {"argmax"}}

func (g *gpu) kernel(name string, correlation, node uint64) {
	g.now += 1000
	w := cupti.Record{Kind: cupti.KindKernel, Name: name, Context: 1, Stream: 13, Correlation: correlation, Node: node, Start: g.now, End: g.now + 800,
		Grid: [3]int32{1, 1, 1}, Block: [3]int32{128, 1, 1}}
	if g.rand.IntN(3) == 0 { // such as one that CUPTI's own thread notices later
		g.late = append(g.late, w)
		return
	}
	g.c.Record(w)
}

func (g *gpu) finish() {
	g.rand.Shuffle(len(g.late), func(i, j int) { g.late[i], g.late[j] = g.late[j], g.late[i] })
	for _, w := range g.late {
		g.c.Record(w)
	}
	g.late = nil
}

func (g *gpu) call(driver bool, id uint32) uint64 {
	g.now += 500
	return g.c.Call(driver, id, g.now, g.now+100)
}

// eager runs a pass, step by step.
func (g *gpu) eager(rec *cupti.Recorder, pass uint64) {
	for step, kernels := range steps {
		rec.Push(tagOf(1, int32(step), pass))
		for i, name := range kernels {
			g.kernel(name, g.call(i%2 == 1, []uint32{211, 307}[i%2]), 0)
		}
		rec.Pop()
	}
}

// TestReplays: over 20 replays of a graph there are the same kernels per stage as in as many eager passes, each of its
// pass, and none that belongs to no step.
func TestReplays(t *testing.T) {
	const passes = 20
	type where struct {
		step int32
		name string
		pass uint64
	}
	run := func(t *testing.T, version uint32, f func(rec *cupti.Recorder, g *gpu)) map[where]int {
		rec, c := open(t, version, cupti.Options{BufferSize: 1 << 13, Buffers: 256})
		g := &gpu{c: c, now: 1 << 40, rand: rand.New(rand.NewPCG(1, uint64(version)))}
		onThread(func() { f(rec, g) })
		g.finish()
		must(t, rec.Stop())
		events := cupti.Convert(rec.Records(), 1<<40, decode)
		if !slices.IsSortedFunc(events, func(a, b traces.Event) int { return traces.Compare(&a, &b) }) {
			t.Error("events are not in order")
		}
		got := map[where]int{}
		for _, e := range events {
			if e.Kind == traces.KindKernel && e.Plan != 1 {
				t.Fatalf("kernel of phase %d", e.Plan)
			}
			if e.Kind == traces.KindKernel {
				got[where{e.Step, e.Name, e.Parent}]++
			}
		}
		// The trace as a whole: what is read of it again, and what attribution makes of it.
		plan := traces.Plan{Phase: "decode step"}
		for i, kernels := range steps {
			plan.Steps = append(plan.Steps, traces.Step{Tag: i, Name: kernels[0], Layer: -1, Slot: -1})
		}
		h := traces.Header{Version: traces.Version, Tool: "test", Process: int64(os.Getpid()), Plans: []traces.Plan{{Phase: "prefill"}, plan}}
		at := require.Value(rec.Clock())(t)
		rec.Describe(&h, at)
		events = again(t, &h, events)
		a := traces.Attribute(&h, events)
		if a.UnknownNodes != 0 || a.WithoutCall != 0 || a.WithoutCorrelation != 0 || a.InSteps != a.Kernels || a.InPassOnly != 0 {
			t.Errorf("attribution is %+v", a)
		}
		if len(h.Dropped) != 0 {
			t.Errorf("dropped %v", h.Dropped)
		}
		must(t, rec.Close())
		return got
	}
	want := map[where]int{}
	for pass := range uint64(passes) {
		for step, kernels := range steps {
			for _, name := range kernels {
				want[where{int32(step), name, pass + 1}]++
			}
		}
	}
	for _, version := range []uint32{22, 28, 130001} {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			eager := run(t, version, func(rec *cupti.Recorder, g *gpu) {
				must(t, rec.Start())
				for pass := range uint64(passes) {
					g.eager(rec, pass+1)
				}
			})
			graph := run(t, version, func(rec *cupti.Recorder, g *gpu) {
				// Captured before Start, as a session may; the tag of the pass is another's.
				node := uint64(1 << 33)
				first := node
				for step, kernels := range steps {
					rec.Push(tagOf(1, int32(step), 77))
					for range kernels {
						g.c.Node(node, 0)
						node++
					}
					rec.Pop()
				}
				must(t, rec.Start())
				rec.Push(tagOf(1, -1, 78)) // what happens to be pushed on instantiation
				nodes := node - first
				for i := range nodes {
					g.c.Node(1<<40+i, first+i)
				}
				rec.Pop()
				for pass := range uint64(passes) {
					rec.Push(tagOf(1, -1, pass+1))
					correlation := g.call(false, 311)
					rec.Pop()
					n := uint64(1 << 40)
					for _, kernels := range steps {
						for _, name := range kernels {
							g.kernel(name, correlation, n)
							n++
						}
					}
				}
			})
			if !maps.Equal(eager, want) {
				t.Errorf("eager: kernels per step are %v", eager)
			}
			if !maps.Equal(graph, want) {
				t.Errorf("graph: kernels per step are %v", graph)
			}
		})
	}
}

// again writes a trace and reads it, which must give the same.
func again(t *testing.T, h *traces.Header, events []traces.Event) []traces.Event {
	t.Helper()
	var file bytes.Buffer
	must(t, traces.Write(&file, "", h, events))
	header, got, err := traces.Read(&file)
	must(t, err)
	if header.Recorder != traces.RecorderCUPTI || header.Clock.Domain != "cupti" {
		t.Errorf("the header is %+v", header)
	}
	if !reflect.DeepEqual(got, events) {
		t.Errorf("%d events were written and %d others read", len(events), len(got))
	}
	return got
}

// TestConvert: the events of each kind of record.
func TestConvert(t *testing.T) {
	mangled := "_ZN38_GLOBAL__N__17afaa07_7_pack_cu_gs_pack14convert_kernelI13__nv_bfloat16S1_Li8EEEvPKT_PT0_mji"
	tag := tagOf(2, 3, 9)
	got := cupti.Convert([]cupti.Record{
		{Kind: cupti.KindExternal, Correlation: 5, External: tag},
		{Kind: cupti.KindRuntime, Start: 110, End: 120, Name: "cudaLaunchKernel_v7000", Process: 8, Thread: 9, Correlation: 5},
		{Kind: cupti.KindDriver, Start: 111, End: 119, Name: "cuLaunchKernelEx_ptsz", Process: 8, Thread: 9, Correlation: 6},
		{Kind: cupti.KindKernel, Start: 130, End: 140, Name: mangled, Device: 1, Context: 2, Stream: 7, Correlation: 5, Grid: [3]int32{1, 2, 3}, Block: [3]int32{4, 5, 6}, Registers: 32, StaticShared: 16, DynamicShared: 64},
		{Kind: cupti.KindMemcpy, Start: 141, End: 150, Device: 1, Context: 2, Stream: 7, Correlation: 7, Bytes: 4096, CopyKind: 1, From: 2, To: 3},
		{Kind: cupti.KindMemcpyPeer, Start: 142, End: 150, Device: 1, Context: 2, Stream: 8, Correlation: 8, CopyKind: 10, From: 3, To: 3},
		{Kind: cupti.KindMemcpy, Start: 143, End: 150, Device: 1, Context: 2, Stream: 9, CopyKind: 99, From: 99, To: 1},
		{Kind: cupti.KindMemset, Start: 151, End: 152, Device: 1, Context: 2, Stream: 7, Bytes: 1 << 63, To: 3},
		{Kind: cupti.KindSync, Start: 160, End: 170, Context: 2, Stream: cupti.AllStreams, Detail: 4},
		{Kind: cupti.KindSync, Start: 161, End: 162, Context: 2, Stream: 7, Detail: 3, Correlation: 5},
		{Kind: cupti.KindOverhead, Start: 180, End: 181, Detail: 1 << 16, Thread: 9, Process: 8},
		{Kind: cupti.KindNode, Start: 190, End: 190, Node: 3, Process: 8, Thread: 9, External: tag, Tagged: true},
		{Kind: cupti.KindNode, Start: 191, End: 191, Node: 4, Origin: 3, Process: 8, Thread: 9},
		{Kind: cupti.KindKernel, Start: 0, End: 0, Name: "without times"},
		{Kind: cupti.KindKernel, Start: 9, End: 5, Name: "backwards"},
	}, 100, decode)

	stream := traces.Stream(8, 1, 2, 7)
	in := func(e traces.Event, phase, step int32, parent uint64) traces.Event {
		e.Plan, e.Step, e.Parent = phase, step, parent
		return e
	}
	with := func(e traces.Event, correlation uint64, bytes int64) traces.Event {
		e.Correlation, e.Bytes = correlation, bytes
		return e
	}
	kernel := traces.Plain(traces.KindKernel, stream, "void (anonymous namespace)::convert_kernel<__nv_bfloat16, __nv_bfloat16, 8>(__nv_bfloat16 const*, __nv_bfloat16*, unsigned long, unsigned int, int)", 30, 10)
	kernel.Grid, kernel.Block, kernel.Registers, kernel.StaticShared, kernel.DynamicShared = [3]int32{1, 2, 3}, [3]int32{4, 5, 6}, 32, 16, 64
	other := func(id int64) traces.Lane { l := stream; l.ID = id; return l }
	syncs := func(id int64) traces.Lane { l := other(id); l.Kind = traces.LaneSync; return l }
	node := traces.Plain(traces.KindNode, traces.Thread(8, 9), "node", 90, 0)
	node.Node = 3
	clone := traces.Plain(traces.KindNode, traces.Thread(8, 9), "node cloned", 91, 0)
	clone.Node, clone.Origin = 4, 3
	want := []traces.Event{
		in(with(traces.Plain(traces.KindRuntime, traces.API(8, 9), "cudaLaunchKernel", 10, 10), 5, 0), 2, 3, 9),
		with(traces.Plain(traces.KindDriver, traces.API(8, 9), "cuLaunchKernelEx_ptsz", 11, 8), 6, 0),
		in(with(kernel, 5, 0), 2, 3, 9),
		with(traces.Plain(traces.KindMemcpy, stream, "Memcpy HtoD (Pinned -> Device)", 41, 9), 7, 4096),
		with(traces.Plain(traces.KindMemcpy, other(8), "Memcpy PtoP (Device -> Device)", 42, 8), 8, 0),
		traces.Plain(traces.KindMemcpy, other(9), "Memcpy (Unknown -> Pageable)", 43, 7),
		with(traces.Plain(traces.KindMemset, stream, "Memset (Device)", 51, 1), 0, 1<<62),
		traces.Plain(traces.KindSync, syncs(-1), "Context Sync", 60, 10),
		in(with(traces.Plain(traces.KindSync, syncs(7), "Stream Sync", 61, 1), 5, 0), 2, 3, 9),
		traces.Plain(traces.KindOverhead, traces.Lane{Kind: traces.LaneOverhead, Device: -1, Process: 8, ID: 9}, "Buffer Flush", 80, 1),
		in(node, 2, 3, 0),
		in(clone, 2, 3, 0),
	}
	if len(got) != len(want) {
		t.Fatalf("%d events, want %d", len(got), len(want))
	}
	for i := range want {
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Errorf("event %d is\n%+v, want\n%+v", i, got[i], want[i])
		}
	}
}

// TestLostNodes: a kernel of a node that is not known belongs to its pass only; a ring of clones ends.
func TestLostNodes(t *testing.T) {
	kernel := cupti.Record{Kind: cupti.KindKernel, Start: 1, End: 2, Name: "k", Correlation: 5, Node: 1}
	launch := cupti.Record{Kind: cupti.KindExternal, Correlation: 5, External: tagOf(1, 4, 6)}
	for name, records := range map[string][]cupti.Record{
		"unknown":  {kernel, launch},
		"untagged": {kernel, launch, {Kind: cupti.KindNode, Start: 1, End: 1, Node: 1}},
		"ring":     {kernel, launch, {Kind: cupti.KindNode, Start: 1, End: 1, Node: 1, Origin: 2}, {Kind: cupti.KindNode, Start: 1, End: 1, Node: 2, Origin: 1}},
		"far":      {kernel, launch, {Kind: cupti.KindNode, Start: 1, End: 1, Node: 1, Origin: 3}},
	} {
		found := false
		for _, e := range cupti.Convert(records, 0, decode) {
			if e.Kind == traces.KindKernel {
				found = true
				if e.Step != -1 || e.Parent != 6 || e.Plan != 1 {
					t.Errorf("%s: kernel is of phase %d, step %d, pass %d", name, e.Plan, e.Step, e.Parent)
				}
			}
		}
		if !found {
			t.Errorf("%s: the kernel is lost", name)
		}
	}
	if e := cupti.Convert([]cupti.Record{kernel, launch}, 0, nil); len(e) != 1 || e[0].Plan != -1 || e[0].Step != -1 {
		t.Errorf("without decode: %+v", e)
	}
}
