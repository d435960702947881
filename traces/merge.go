package traces

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// Merge makes one trace of the recordings of several processes, such as the ranks of a program. Their clocks are
// aligned by the time since 1970 that each recording states; names are those of the files, for errors and for what was
// not recorded. Processes with equal ids are told apart. GPUs with equal ids are one GPU if they have equal names,
// unless the recordings say otherwise: by their UUIDs, or because no two ranks can use it.
func Merge(list []*Trace, names []string) (*Trace, error) {
	if len(list) == 1 {
		return list[0], nil
	}
	m := merger{header: *list[0].Header, processes: map[int64]bool{}, devices: map[int]Device{}, worked: map[int]bool{}}
	h := &m.header
	h.Events, h.Plans, h.Devices, h.Lanes, h.Ceilings, h.Overhead, h.Energy = 0, nil, nil, nil, nil, nil, nil
	h.NotRecorded, h.Incomplete, h.Notes, h.Dropped, h.Versions, h.Command, h.Ranks = nil, nil, nil, nil,
		maps.Clone(h.Versions), nil, nil
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
	devices   map[int]Device
	worked    map[int]bool // devices that a recording before has work of
	ranges    uint64       // ids of ranges up to this one are used
}

// add adds a trace to the others.
func (m *merger) add(t *Trace, name string) {
	h := &m.header
	shift := t.Header.Base - h.Base
	processes, devices, plans := map[int64]int64{}, map[int32]int32{}, map[int32]int32{}
	process := func(id int64) int64 {
		now, ok := processes[id]
		if !ok {
			for now = id; m.processes[now]; {
				now += 1 << 32 // more than any process id
			}
			processes[id] = now
		}
		return now
	}
	works := map[int]bool{}
	for i := range t.Events {
		if e := &t.Events[i]; e.Kind.IsGPU() {
			works[int(e.Lane.Device)] = true
		}
	}
	alone := slices.ContainsFunc(t.Header.Ranks, func(r Rank) bool { return r.OwnGPU })
	for _, d := range t.Header.Devices {
		id, from := d.ID, d.ID
		same := func() bool {
			known := m.devices[id]
			return known.Name == d.Name && (known.UUID == d.UUID || known.UUID == "" || d.UUID == "") &&
				!(alone && works[from] && m.worked[id])
		}
		for _, used := m.devices[id]; used && !same(); _, used = m.devices[id] {
			id++
		}
		if _, used := m.devices[id]; !used {
			d.ID = id
			m.devices[id] = d
			h.Devices = append(h.Devices, d)
		}
		devices[int32(from)] = int32(id)
	}
	for id := range works {
		if now, ok := devices[int32(id)]; ok {
			id = int(now)
		}
		m.worked[id] = true
	}
	device := func(id int32) int32 {
		if now, ok := devices[id]; ok {
			return now
		}
		return id
	}
	for i, p := range t.Header.Plans {
		at := slices.IndexFunc(h.Plans, func(o Plan) bool { return reflect.DeepEqual(o, p) })
		if at < 0 {
			at = len(h.Plans)
			h.Plans = append(h.Plans, p)
		}
		plans[int32(i)] = int32(at)
	}
	lane := func(l Lane, ofEvent bool) Lane {
		if l.Process == 0 && ofEvent {
			l.Process = t.Header.Process
		}
		if l.Process != 0 {
			l.Process = process(l.Process)
		}
		if l.Device >= 0 {
			l.Device = device(l.Device)
		}
		return l
	}
	last := m.ranges
	for i := range t.Events {
		e := t.Events[i]
		e.Time += shift
		e.Lane = lane(e.Lane, true)
		if e.ID != 0 {
			e.ID += m.ranges
			last = max(last, e.ID)
		}
		if e.Parent != 0 {
			e.Parent += m.ranges
		}
		if e.Plan >= 0 {
			e.Plan = plans[e.Plan]
		}
		m.events = append(m.events, e)
	}
	m.ranges = last
	for _, r := range t.Header.Ranks {
		r.Process = process(r.Process)
		h.Ranks = append(h.Ranks, r)
	}
	for _, now := range processes {
		m.processes[now] = true
	}
	for _, l := range t.Header.Lanes {
		h.Lanes = append(h.Lanes, LaneName{lane(l.Lane, true), l.Name})
	}
	for _, c := range t.Header.Ceilings {
		if c.Device >= 0 {
			c.Device = int(device(int32(c.Device)))
		}
		if !slices.Contains(h.Ceilings, c) {
			h.Ceilings = append(h.Ceilings, c)
		}
	}
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
	h.Overhead = append(h.Overhead, t.Header.Overhead...)
	h.Process = 0 // each event has its own
}
