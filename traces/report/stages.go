package report

import (
	"strconv"
	"strings"

	"gpt2scope/internal/humanize"
	"gpt2scope/traces"
	"gpt2scope/traces/tables"
)

// stage is a row of the table, as the page shows it.
type stage struct {
	Index   int // in the table's rows
	Kind    tables.RowKind
	Phase   string
	Name    string
	Class   int // colour
	Calls   string
	Kernels string
	Host    string
	Busy    string
	Time    string
	Share   string
	Bytes   string // GB/s
	FLOPs   string // TFLOP/s
	Floor   string
	OfFloor string

	// For sorting.
	NS, HostNS, BusyNS, FloorNS int64
	CallsN, KernelsN            int
	BytesRate, FLOPsRate        float64
	OfFloorPercent              float64
	Bar                         string // width in percent of the longest row
}

// IsWork reports whether the row has kernels to list.
func (s stage) IsWork() bool { return s.Kind == tables.RowWork || s.Kind == tables.RowOther }

// Fill is the class of the row's colour in the style.
func (s stage) Fill() string {
	if s.Kind == tables.RowWork {
		return "k" + strconv.Itoa(s.Class)
	}
	return "k" + string(s.Kind)
}

// Cause is the name of a row of idle time without the word idle.
func (s stage) Cause() string { return strings.TrimPrefix(s.Name, "idle: ") }

// classes is how many colours stages have.
const classes = 8

// stages makes the rows of the page from those of the table.
func stages(t *tables.Table) []stage {
	var rows []stage
	colours := map[string]int{}
	var longest int64 = 1
	for i := range t.Rows {
		longest = max(longest, t.Rows[i].Exclusive)
	}
	for i := range t.Rows {
		r := &t.Rows[i]
		s := stage{Index: i, Kind: r.Kind, Phase: r.Phase, Name: r.Name, Class: -1, NS: r.Exclusive, HostNS: r.Host, BusyNS: r.Busy, CallsN: r.Calls, KernelsN: r.Kernels,
			Time: micros(r.Exclusive), Share: "-", Bytes: rate(r.Bytes, r.Exclusive, 1), FLOPs: rate(r.FLOPs, r.Exclusive, 1e-3)}
		if r.Kind == tables.RowWork {
			name := traces.InAnyLayer(r.Name) // stages of all layers have one colour
			class, ok := colours[name]
			if !ok {
				class = len(colours) % classes
				colours[name] = class
			}
			s.Class = class
		}
		if r.Kind == tables.RowOther && t.By == tables.ByKernel {
			s.Name = "copy: " + s.Name
		}
		if r.Kind == tables.RowIdle {
			s.Name = "idle: " + s.Name
		}
		if r.Calls > 0 {
			s.Calls = humanize.Thousands(int64(r.Calls))
		}
		if r.Kernels > 0 {
			s.Kernels = humanize.Thousands(int64(r.Kernels))
		}
		if r.Host > 0 {
			s.Host = micros(r.Host)
		}
		if s.IsWork() {
			s.Busy = micros(r.Busy)
		}
		if v, ok := t.Share(r); ok {
			s.Share = strconv.FormatFloat(v, 'f', 2, 64)
		}
		if r.Exclusive > 0 {
			s.BytesRate, s.FLOPsRate = float64(r.Bytes)/float64(r.Exclusive), float64(r.FLOPs)/float64(r.Exclusive)
		}
		if floor := r.Floor; floor > 0 {
			s.FloorNS = floor
			s.Floor = micros(floor)
			if r.Exclusive > 0 {
				s.OfFloorPercent = 100 * float64(floor) / float64(r.Exclusive)
				s.OfFloor = strconv.FormatFloat(s.OfFloorPercent, 'f', 1, 64)
			}
		}
		s.Bar = strconv.FormatFloat(100*float64(r.Exclusive)/float64(longest), 'f', 2, 64)
		rows = append(rows, s)
	}
	return rows
}

// ceilings are what a device was measured to do.
type ceilings struct {
	reads  []traces.Ceiling // GB/s
	math   []traces.Ceiling // TFLOP/s, of the recording's type where that is known
	device int32
}

func ceilingsOf(h *traces.Header, device int32) ceilings {
	c := ceilings{device: device}
	for _, m := range h.Ceilings {
		if int32(m.Device) != device || !(m.Value > 1e-6 && m.Value < 1e9) { // no device is like that
			continue
		}
		switch {
		case m.Unit == "GB/s" && m.Name == "read":
			c.reads = append(c.reads, m)
		case m.Unit == "TFLOP/s" && (h.DType == "" || m.Name == h.DType):
			c.math = append(c.math, m)
		}
	}
	return c
}

// known reports whether there are ceilings of both kinds.
func (c ceilings) known() bool { return len(c.reads) > 0 && len(c.math) > 0 }

// point is a stage in the roofline.
type point struct {
	Row       int     `json:"row"`
	Intensity float64 `json:"x"` // FLOP/byte
	Rate      float64 `json:"y"` // FLOP/s
	Share     float64 `json:"share"`
}

// roof is a ceiling in the roofline.
type roof struct {
	Label string  `json:"label"`
	Value float64 `json:"value"` // byte/s or FLOP/s
	Slope bool    `json:"slope"` // a bandwidth
}

// roofline is what the script draws against arithmetic intensity.
type roofline struct {
	Points []point `json:"points"`
	Roofs  []roof  `json:"roofs"`
}

func newRoofline(t *tables.Table, c ceilings) roofline {
	r := roofline{Points: []point{}, Roofs: []roof{}}
	for i := range t.Rows {
		if row := &t.Rows[i]; row.Kind == tables.RowWork && row.FLOPs > 0 && row.Bytes > 0 && row.Exclusive > 0 {
			r.Points = append(r.Points, point{i, float64(row.FLOPs) / float64(row.Bytes), float64(row.FLOPs) / float64(row.Exclusive) * 1e9, float64(row.Exclusive) / float64(max(t.Wall, 1))})
		}
	}
	for _, m := range c.reads {
		label := "read"
		if m.Size > 0 {
			label = "read, up to " + humanize.Size(m.Size)
		}
		r.Roofs = append(r.Roofs, roof{label + " " + strconv.FormatFloat(m.Value, 'f', 0, 64) + " GB/s", m.Value * 1e9, true})
	}
	for _, m := range c.math {
		r.Roofs = append(r.Roofs, roof{m.Name + " " + strconv.FormatFloat(m.Value, 'f', 1, 64) + " TFLOP/s", m.Value * 1e12, false})
	}
	return r
}
