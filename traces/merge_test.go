package traces_test

import (
	"fmt"
	"strings"
	"testing"

	"gpt2scope/traces"
	"gpt2scope/traces/internal/fixtures"
	"gpt2scope/traces/internal/samples"
)

// TestMerge: of two processes with equal ids, whose recordings began at different times, each
// kernel keeps its call and its range, and lies where it ran.
func TestMerge(t *testing.T) {
	one := func(base int64, name string) *traces.Trace {
		in := traces.Plain(traces.KindRange, traces.Thread(1, 1), "range of "+name, 0, 50)
		events := append(fixtures.Launched(1, 10, 20, 30, 40), in)
		events[1].Name = name
		return traces.NewTrace(&traces.Header{Base: base, Process: 1, Recorder: traces.RecorderKineto, Devices: []traces.Device{{ID: 0, Name: "GPU"}}}, events)
	}
	a, b := one(5000, "late"), one(1000, "early")
	m := fixtures.Must(traces.Merge([]*traces.Trace{a, b}, []string{"a", "b"}))(t)
	if m.Header.Base != 1000 || m.Kernels != 2 || m.WithoutCall != 0 || m.WithoutRange != 0 || len(m.Header.Devices) != 1 {
		t.Errorf("base %d, %+v, devices %+v", m.Header.Base, m.Attribution, m.Header.Devices)
	}
	ranges := map[uint64]string{}
	processes := map[int64]bool{}
	for i := range m.Events {
		if e := &m.Events[i]; e.Kind == traces.KindRange {
			ranges[e.ID] = e.Name
		}
	}
	for i := range m.Events {
		e := &m.Events[i]
		if e.Kind != traces.KindKernel {
			continue
		}
		if want := map[string]int64{"early": 30, "late": 4030}[e.Name]; e.Time != want || ranges[e.Parent] != "range of "+e.Name {
			t.Errorf("kernel %s is at %d in %q", e.Name, e.Time, ranges[e.Parent])
		}
		processes[e.Lane.Process] = true
	}
	if len(processes) != 2 {
		t.Errorf("the processes are %v", processes)
	}
	a.Header.Recorder = traces.RecorderNsys
	if _, err := traces.Merge([]*traces.Trace{a, b}, []string{"a", "b"}); err == nil || !strings.Contains(err.Error(), "of one kind") {
		t.Errorf("of two recorders: %v", err)
	}
	b.Header.Base = 0
	if _, err := traces.Merge([]*traces.Trace{b, one(1, "x")}, []string{"b", "x"}); err == nil || !strings.Contains(err.Error(), "b does not say when") {
		t.Errorf("without a time: %v", err)
	}
	other := one(5000, "other")
	other.Header.Devices[0].Name = "another GPU"
	if m, err := traces.Merge([]*traces.Trace{one(1000, "x"), other}, []string{"a", "b"}); err != nil || len(m.Header.Devices) != 2 || m.Header.Devices[1].ID != 1 {
		t.Errorf("of two GPUs: %+v, %v", m, err)
	}
}

// TestMergeDevices: which GPUs of two recordings are one.
func TestMergeDevices(t *testing.T) {
	nccl := func(rank int) []traces.Rank {
		return []traces.Rank{{Process: 1, Rank: rank, Source: "distributedInfo", OwnGPU: true}}
	}
	visible := []traces.Device{{ID: 0, Name: "GPU"}, {ID: 1, Name: "GPU"}}
	for _, c := range []struct {
		what     string
		on       [2]int32 // the device that has the work
		devices  [2][]traces.Device
		ranks    [2][]traces.Rank
		want     string // the devices of the kernels
		wantGPUs int
	}{
		{"two processes on one GPU", [2]int32{0, 0}, [2][]traces.Device{visible[:1], visible[:1]}, [2][]traces.Rank{}, "0 0", 1},
		{"two ranks by NCCL that each see one GPU", [2]int32{0, 0}, [2][]traces.Device{visible[:1], visible[:1]}, [2][]traces.Rank{nccl(0), nccl(1)}, "0 1", 2},
		{"two ranks by NCCL that see both", [2]int32{0, 1}, [2][]traces.Device{visible, visible}, [2][]traces.Rank{nccl(0), nccl(1)}, "0 1", 2},
		{"two ranks by NCCL on two machines of two GPUs", [2]int32{1, 1}, [2][]traces.Device{visible, visible}, [2][]traces.Rank{nccl(1), nccl(3)}, "1 2", 3},
		{"GPUs with UUIDs", [2]int32{0, 0}, [2][]traces.Device{{{Name: "GPU", UUID: "a"}}, {{Name: "GPU", UUID: "b"}}}, [2][]traces.Rank{}, "0 1", 2},
		{"one GPU with a UUID", [2]int32{0, 0}, [2][]traces.Device{{{Name: "GPU", UUID: "a"}}, {{Name: "GPU", UUID: "a"}}}, [2][]traces.Rank{}, "0 0", 1},
	} {
		var list []*traces.Trace
		for i := range 2 {
			events := fixtures.Launched(1, 10, 20, 30, 40)
			events[1].Lane.Device = c.on[i]
			list = append(list, traces.NewTrace(&traces.Header{Base: 1000 + int64(i), Process: 1, Recorder: traces.RecorderKineto, Devices: c.devices[i], Ranks: c.ranks[i]}, events))
		}
		m := fixtures.Must(traces.Merge(list, []string{"a", "b"}))(t)
		var got []string
		for i := range m.Events {
			if e := &m.Events[i]; e.Kind == traces.KindKernel {
				got = append(got, fmt.Sprint(e.Lane.Device))
			}
		}
		if strings.Join(got, " ") != c.want || len(m.Header.Devices) != c.wantGPUs {
			t.Errorf("%s: kernels on GPUs %v, of %+v", c.what, got, m.Header.Devices)
		}
	}
}

// TestMergeRanks: the files that PyTorch's profiler wrote of two ranks are two processes on one
// GPU, and nothing of them is lost.
func TestMergeRanks(t *testing.T) {
	var list []*traces.Trace
	kernels, calls := 0, 0
	for _, name := range []string{"rank0", "rank1"} {
		tr := samples.Load(t, "pytorch/"+name+".json.gz")
		list = append(list, tr)
		kernels, calls = kernels+tr.Kernels, calls+tr.Calls
	}
	m, err := traces.Merge(list, []string{"rank0", "rank1"})
	if err != nil || m.Kernels != kernels || m.Calls != calls || m.WithoutCall != 0 {
		t.Fatalf("%+v, %v", m.Attribution, err)
	}
}

// TestRebase: times that are a day from the base become small, and mean the same.
func TestRebase(t *testing.T) {
	tr := samples.Load(t, "pytorch/kineto.json.gz")
	first, last := tr.Header.Base+tr.Events[0].Time, tr.Header.Base+tr.Events[len(tr.Events)-1].Time
	tr.Rebase()
	if at := tr.Events[0].Time; at != 0 || tr.Header.Base != first || tr.Header.Base+tr.Events[len(tr.Events)-1].Time != last {
		t.Errorf("the first event is at %d after %d, not at %d", at, tr.Header.Base, first)
	}
	before := fixtures.Trace(&traces.Header{Base: 5000}, fixtures.Launched(1, -100, 110, 120, 130)...)
	if before.Rebase(); before.Header.Base != 4900 || before.Events[0].Time != 0 || before.Events[1].Time != 220 {
		t.Errorf("before the base: %d, %+v", before.Header.Base, before.Events)
	}
	unknown := fixtures.Trace(&traces.Header{}, fixtures.Launched(1, -100, 110, 120, 130)...)
	if unknown.Rebase(); unknown.Header.Base != 0 || unknown.Events[0].Time != 0 {
		t.Errorf("a base that is not known becomes %d", unknown.Header.Base)
	}
	own := fixtures.Trace(&traces.Header{Base: 5}, fixtures.Launched(1, 100, 110, 120, 130)...)
	if own.Rebase(); own.Header.Base != 5 || own.Events[0].Time != 100 {
		t.Error("small times are moved")
	}
}
