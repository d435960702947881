package traces

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"

	"gpt2scope/internal/lazyregexp"
)

// Merge makes one trace of the recordings of several processes, such as the ranks of a program. Their clocks are
// aligned by the time since 1970 that each recording states; names are those of the files, for errors and for what was
// not recorded. Processes with equal ids are told apart. GPUs with equal ids are one GPU if they have equal names,
// unless the recordings say otherwise: by their UUIDs, or because no two ranks can use it.
func Merge(list []*Trace, names []string) (*Trace, error) {
	if len(list) == 1 {
		return list[0], nil
	}
	f := list[0].Header
	m := merger{processes: map[int64]bool{}, worked: map[int32]bool{}, was: map[int]int{},
		header: Header{Version: f.Version, Tool: f.Tool, Release: f.Release, Recorder: f.Recorder, Base: f.Base,
			Clock: f.Clock, DType: f.DType, Versions: f.Versions, Colours: f.Colours, Inferred: f.Inferred,
			Against: f.Against, CostsFrom: f.CostsFrom}}
	h := &m.header
	for i, t := range list {
		switch {
		case t.Header.Base == 0:
			return nil, fmt.Errorf("%s does not say when it was recorded, so that its clock cannot be aligned with the others'",
				names[i])
		case i > 0 && t.Header.Recorder != h.Recorder:
			return nil, fmt.Errorf("%s was recorded by %s and %s by %s: recordings of one kind can be shown together",
				names[0], h.Recorder, names[i], t.Header.Recorder)
		}
		h.Base = min(h.Base, t.Header.Base)
	}
	for i, t := range list {
		if t.Header.Base-h.Base > MaxTime/2 {
			return nil, fmt.Errorf("%s was recorded %d days after the first of the others: they are not of one run",
				names[i], (t.Header.Base-h.Base)/1e9/86400)
		}
		m.add(t, names[i])
	}
	h.Clock.Aligned = fmt.Sprintf("%d files, aligned by the time of day that each states; on one machine it is one "+
		"clock, clocks of several machines can be milliseconds apart", len(list))
	return NewTrace(h, m.events), nil
}

// merger is the state of Merge.
type merger struct {
	header    Header
	events    []Event
	processes map[int64]bool
	worked    map[int32]bool // devices that a recording before has work of
	was       map[int]int    // the id of a device in its recording
	ranges    uint64         // ids of ranges up to this one are used
}

func (m *merger) add(t *Trace, name string) {
	h := &m.header
	shift := t.Header.Base - h.Base
	processes, devices, plans := map[int64]int64{}, map[int32]int32{}, map[int32]int32{}
	process := func(id int64) int64 {
		now, ok := processes[id]
		if !ok {
			for now = id; m.processes[now]; {
				now += otherFile
			}
			processes[id] = now
		}
		return now
	}
	works := map[int32]bool{}
	for i := range t.Events {
		if e := &t.Events[i]; e.Kind.IsGPU() {
			works[e.Lane.Device] = true
		}
	}
	alone := slices.ContainsFunc(t.Header.Ranks, func(r Rank) bool { return r.OwnGPU })
	for _, d := range t.Header.Devices {
		from := int32(d.ID)
		at := slices.IndexFunc(h.Devices, func(o Device) bool {
			same := o.UUID == d.UUID
			if o.UUID == "" || d.UUID == "" {
				same = o.Name == d.Name && m.was[o.ID] == d.ID
			}
			return same && !(alone && works[from] && m.worked[int32(o.ID)])
		})
		if at < 0 {
			for slices.ContainsFunc(h.Devices, func(o Device) bool { return o.ID == d.ID }) {
				d.ID++
			}
			m.was[d.ID] = int(from)
			at, h.Devices = len(h.Devices), append(h.Devices, d)
		}
		devices[from] = int32(h.Devices[at].ID)
	}
	device := func(id int32) int32 {
		if now, ok := devices[id]; ok {
			return now
		}
		return id
	}
	for id := range works {
		m.worked[device(id)] = true
	}
	for i, p := range t.Header.Plans {
		at := slices.IndexFunc(h.Plans, func(o Plan) bool { return reflect.DeepEqual(o, p) })
		if at < 0 {
			at = len(h.Plans)
			h.Plans = append(h.Plans, p)
		}
		plans[int32(i)] = int32(at)
	}
	lane := func(l Lane) Lane {
		if p := cmp.Or(l.Process, t.Header.Process); p != 0 {
			l.Process = process(p)
		}
		if l.Device >= 0 {
			l.Device = device(l.Device)
		}
		return l
	}
	for i := range t.Events {
		e := t.Events[i]
		e.Time += shift
		e.Lane = lane(e.Lane)
		if e.ID != 0 {
			e.ID += m.ranges
		}
		if e.Parent != 0 {
			e.Parent += m.ranges
		}
		if e.Plan >= 0 {
			e.Plan = plans[e.Plan]
		}
		m.events = append(m.events, e)
	}
	m.ranges += LastID(t.Events)
	for _, r := range t.Header.Ranks {
		r.Process = process(r.Process)
		h.Ranks = append(h.Ranks, r)
	}
	for _, now := range processes {
		m.processes[now] = true
	}
	for _, l := range t.Header.Lanes {
		h.Lanes = append(h.Lanes, LaneName{lane(l.Lane), l.Name})
	}
	for _, c := range t.Header.Ceilings {
		if c.Device >= 0 {
			c.Device = int(device(int32(c.Device)))
		}
		if !slices.Contains(h.Ceilings, c) {
			h.Ceilings = append(h.Ceilings, c)
		}
	}
	for _, e := range t.Header.Energy {
		e.Device = int(device(int32(e.Device)))
		h.Energy = append(h.Energy, e)
	}
	h.Drafts.Accepted += t.Header.Drafts.Accepted
	h.Drafts.Dropped += t.Header.Drafts.Dropped
	union := func(to []string, from []string) []string {
		for _, s := range from {
			if !slices.Contains(to, s) {
				to = append(to, s)
			}
		}
		return to
	}
	h.NotRecorded = union(h.NotRecorded, t.Header.NotRecorded)
	for _, s := range t.Header.Incomplete {
		h.Incomplete = append(h.Incomplete, name+": "+s)
	}
	h.Notes = union(h.Notes, t.Header.Notes)
	for what, n := range t.Header.Dropped {
		h.Drop(what, n)
	}
	for what, n := range t.Header.Unknown {
		h.unknown(what, n)
	}
	for what, n := range t.Header.Mended {
		h.mend(what, n)
	}
	h.Overhead = append(h.Overhead, t.Header.Overhead...)
	h.Process = 0 // each event has its own
}

// Rank says which rank of a distributed program a process is.
type Rank struct {
	// Process is its id. 0 in a file stands for the only process whose work on a GPU the file has:
	// what names the rank often does not name the process.
	Process int64 `json:"process"`

	Rank   int    `json:"rank"`
	Source string `json:"source"` // what says so: "distributedInfo", "MPI_RANKS", "the variable RANK", "the file's name"

	// OwnGPU says that no other rank uses its GPU: the ranks communicate by NCCL, which refuses that.
	OwnGPU bool `json:"ownGPU,omitempty"`
}

// RankVariables are the environment variables by which launchers tell a process its rank, those that
// are more certain first: torchrun, Open MPI, MPICH and PMIx, MVAPICH, Slurm.
var RankVariables = []string{"RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK",
	"SLURM_PROCID"}

var rankInName = lazyregexp.New(`(?i)(?:^|[^a-z])rank[-_ =.]?(\d{1,6})(?:\D|$)`)

// RankInName finds the rank in the name of a file or process, such as "run_rank3.sqlite".
func RankInName(name string) (rank int, ok bool) {
	m := rankInName().FindStringSubmatch(name)
	if m == nil {
		return 0, false
	}
	rank, err := strconv.Atoi(m[1])
	return rank, err == nil
}

// RankOf returns the rank of a process, and whether the recording says it.
func (h *Header) RankOf(process int64) (rank int, ok bool) {
	for _, r := range h.Ranks {
		if r.Process == process && process != 0 {
			return r.Rank, true
		}
	}
	return 0, false
}

// ProcessName names a process for people: "rank 0", or "process 4711" if it has no known rank.
func (h *Header) ProcessName(process int64) string {
	if rank, ok := h.RankOf(process); ok {
		return fmt.Sprintf("rank %d", rank)
	}
	return "process " + ProcessText(process)
}

// ProcessText writes the id of a process. One that another file has too was given a number beyond any id: it is "17 (2)".
func ProcessText(process int64) string {
	id, more := process&(otherFile-1), process/otherFile
	if more <= 0 {
		return strconv.FormatInt(process, 10)
	}
	return fmt.Sprintf("%d (%d)", id, more+1)
}

// otherFile is added to the id of a process that another file has too: more than any process id.
const otherFile = 1 << 32

// nameRanks gives ranks that name no process the only process with work on a GPU. If there are
// several, or none, these ranks are left out. Of several ranks of a process the first counts.
func (t *Trace) nameRanks() {
	h := t.Header
	if len(h.Ranks) == 0 {
		return
	}
	processes := map[int64]bool{}
	for i := range t.Events {
		if e := &t.Events[i]; e.Kind.IsGPU() && h.ProcessOf(e) != 0 {
			processes[h.ProcessOf(e)] = true
		}
	}
	only := int64(0)
	if len(processes) == 1 {
		only = slices.Collect(maps.Keys(processes))[0]
	}
	var ranks []Rank
	for _, r := range h.Ranks {
		r.Process = cmp.Or(r.Process, only)
		if r.Process != 0 && !slices.ContainsFunc(ranks, func(o Rank) bool { return o.Process == r.Process }) {
			ranks = append(ranks, r)
		}
	}
	slices.SortFunc(ranks, func(a, b Rank) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Process, b.Process))
	})
	h.Ranks = ranks
}
