package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gpt2scope/ceilings"
	"gpt2scope/glossary"
	"gpt2scope/internal/humanize"
	"gpt2scope/traces"
	"gpt2scope/traces/tables"
)

// stage is a row of the page's table: a stage over all layers, one of its layers, a kernel, or idle time.
type stage struct {
	tables.Row
	Rows   []int   // the rows that it sums, by their place in Table.Rows
	Layers []stage // one for each of them, if there are several
	Title  string  // the name, without what all names of its kind share
	Launch string  // of a kernel: its grid and block
	Help   string  // what the stage or kernel does, or the idle time is
	Class  int     // colour; -1 for none
	Share  string  // % of wall time
	Bar    string  // length of the bar, % of the longest
	Roof   string  // roofline %
	Limit  string  // what the roofline is there
	IsCopy bool    // a row of copies or sets
}

// IsWork reports whether the row has events to list.
func (s stage) IsWork() bool { return s.Kind == tables.RowWork || s.Kind == tables.RowOther }

// Fill is the style's class of the row's colour.
func (s stage) Fill() string { return fill(s.Kind, s.Class) }

func fill(kind tables.RowKind, class int) string {
	if kind == tables.RowWork {
		return "k" + strconv.Itoa(class)
	}
	return "k" + string(kind)
}

// IDs lists the rows for the script.
func (s stage) IDs() string { return idsOf(s.Rows) }

func idsOf(rows []int) string { return strings.Trim(fmt.Sprint(rows), "[]") }

// GBs returns bytes per time in GB/s, and FLOPs in GFLOP/s.
func (s stage) GBs() float64    { return float64(s.Bytes) / float64(max(1, s.Exclusive)) }
func (s stage) GFLOPs() float64 { return float64(s.FLOPs) / float64(max(1, s.Exclusive)) }

// foldedRows are the rows of a table, those of a stage of all layers as one.
func foldedRows(t *tables.Table) (folded []tables.Folded) {
	switch {
	case t.Folded != nil:
		return t.Folded
	case t.By == tables.ByStage:
		return tables.FoldLayers(t)
	}
	for i := range t.Rows {
		folded = append(folded, tables.Folded{Row: t.Rows[i], Rows: []int{i}})
	}
	return folded
}

// stages makes the rows of the page: those of the table, with one row for each stage over all layers.
func stages(t *tables.Table) []stage {
	folded := foldedRows(t)
	colours, _ := coloursOf(t, folded)
	longest := int64(1)
	for i := range folded {
		longest = max(longest, folded[i].Exclusive)
	}
	row := func(r *tables.Row, class int, rows ...int) stage {
		s := stage{Row: *r, Rows: rows, Title: r.Name, Class: class, Share: "-", Bar: percent(r.Exclusive, longest, 2)}
		if r.Shape.Known() {
			s.Launch = tables.Dims(r.Shape.Grid) + " blocks of " + tables.Dims(r.Shape.Block)
			if r.Shape.Blocks() == 1 {
				s.Launch = "1 block of " + tables.Dims(r.Shape.Block)
			}
		}
		if v, ok := t.Share(r); ok {
			s.Share = strconv.FormatFloat(v, 'f', 2, 64)
		}
		if v, ok := t.Roofline(r); ok {
			s.Roof, s.Limit = strconv.FormatFloat(v, 'f', 1, 64), limits[r.Bound]
		}
		if t.By == tables.ByKernel {
			s.Title = shortName(r.Name)
		}
		switch {
		case r.Kind == tables.RowIdle:
			s.Title, s.Help = "idle: "+s.Title, glossary.Says(r.Name, glossary.Idle)
		case t.By == tables.ByKernel || t.By == tables.ByOp:
			if s.Help = nameHelp(r.Name); r.Kind == tables.RowOther && t.By == tables.ByKernel {
				s.Title, s.IsCopy = "copy: "+s.Title, true
			}
		case r.Kind == tables.RowWork && t.By == tables.ByStage:
			s.Help = stageHelp(r.Name)
		}
		return s
	}
	var all []stage
	for i := range folded {
		f := &folded[i]
		class, ok := colours[f.Name]
		if !ok || f.Kind != tables.RowWork {
			class = -1
		}
		s := row(&f.Row, class, f.Rows...)
		if len(f.Rows) > 1 {
			for _, i := range f.Rows {
				s.Layers = append(s.Layers, row(&t.Rows[i], class, i))
			}
		}
		all = append(all, s)
	}
	rest := func(s *stage) int {
		if s.Kind == tables.RowResidual {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(all, func(a, b stage) int {
		return cmp.Or(cmp.Compare(rest(&a), rest(&b)), cmp.Compare(b.Exclusive, a.Exclusive))
	})
	return all
}

// column is a column of the table of stages, after that of their names.
type column struct {
	Key, Head, Unit, Help, Class string
	text                         func(*stage) string
}

// Text is the cell of a row.
func (c column) Text(s stage) string { return c.text(&s) }

// columns lists the columns that have a value in some row. Those of class "more" are not shown where there is little
// room.
func (p *page) columns() (all []column) {
	add := func(when bool, key, head, unit, help, class string, text func(*stage) string) {
		if when {
			all = append(all, column{key, head, unit, help, class, text})
		}
	}
	time := func(when bool, key, head, help string, of func(*stage) (ns int64, known bool)) {
		add(when, key, head, "µs", help, "more", func(s *stage) string {
			ns, known := of(s)
			return unless(!known, micros(ns))
		})
	}
	count := func(when bool, key, head, help string, of func(*stage) int) {
		add(when, key, head, "", help, "more", func(s *stage) string {
			return unless(of(s) == 0, humanize.Thousands(int64(of(s))))
		})
	}
	rate := func(key, head, help string, of func(*stage) float64) {
		add(p.Costs, key, head, "", help, "more", func(s *stage) string {
			return unless(of(s) == 0, humanize.Significant(of(s), 3))
		})
	}
	inside := func(key, head, help string, of func(*traces.Parts) int64) {
		time(p.SMs != nil, key, head, help, func(s *stage) (int64, bool) {
			return of(cmp.Or(s.Inside, &traces.Parts{})), s.Inside != nil
		})
	}
	unit, scale, host, copies := "GFLOP/s", 1.0, false, false
	for _, s := range p.Stages {
		host, copies = host || s.Host > 0, copies || s.Copies > 0
		if s.GFLOPs() >= 1000 {
			unit, scale = "TFLOP/s", 1e-3
		}
	}
	kernels, busy, durations := "Kernels, copies and sets", "GPU", "Durations of the kernels, which may overlap"
	if p.OnCPU {
		kernels, busy, durations = "Runs on threads", "Threads", "Sum over all threads"
	}
	text := map[tables.By]string{tables.ByStage: "Phase", tables.ByKernel: "Launched as"}[p.Table.By]
	add(text != "", "phase", text, "", "", "text more", func(s *stage) string { return cmp.Or(s.Phase, s.Launch) })
	add(true, "ns", "Time", "µs", "Exclusive time: the work runs, and nothing that began earlier still does", "time",
		func(s *stage) string { return micros(s.Exclusive) })
	time(copies, "copies", "Copies", "Of the time, that of copies and sets",
		func(s *stage) (int64, bool) { return s.Copies, s.Copies > 0 })
	add(true, "share", "% of wall", "", "Time in percent of the wall time", "pc", func(s *stage) string { return s.Share })
	add(true, "", "", "", "", "barcell", nil)
	add(p.Floors, "roof", "roofline %", "", "Floor in percent of the time: 100 is as fast as the device can be", "",
		func(s *stage) string { return s.Roof })
	time(p.Floors, "floor", "Floor", "The least time that the bytes and FLOPs need at the measured ceilings",
		func(s *stage) (int64, bool) { return s.Floor, s.Floor > 0 })
	rate("bytes", "GB/s", "Least bytes over time", func(s *stage) float64 { return s.GBs() })
	rate("flops", unit, "FLOPs over time", func(s *stage) float64 { return s.GFLOPs() * scale })
	count(true, "calls", "Calls", "How often it ran", func(s *stage) int { return s.Calls })
	count(p.WorkTitle != "", "kernels", p.WorkTitle, kernels, func(s *stage) int { return s.Kernels })
	inside("weights", "Weights", "SMs wait for weights, or keys and values",
		func(p *traces.Parts) int64 { return p.Weights })
	inside("inputs", "Inputs", "SMs wait for what other SMs compute", func(p *traces.Parts) int64 { return p.Inputs })
	inside("compute", "Compute", "From the inputs to the published outputs",
		func(p *traces.Parts) int64 { return p.Compute })
	inside("imbalance", "Imbalance", "SMs wait for the last one", func(p *traces.Parts) int64 { return p.Imbalance })
	time(host, "host", "Host", "Time of its ranges on the host",
		func(s *stage) (int64, bool) { return s.Host, s.Host > 0 })
	time(true, "busy", busy, durations, func(s *stage) (int64, bool) { return s.Busy, s.IsWork() })
	time(true, "median", "Median", "Median of the durations",
		func(s *stage) (int64, bool) { return s.Median, s.Median > 0 })
	return all
}

// limits say what bounds the floor of a row.
var limits = map[string]string{ceilings.BoundBytes: "limited by bandwidth",
	ceilings.BoundFLOPs: "limited by arithmetic"}

// percent writes part in percent of the whole.
func percent(part, whole int64, decimals int) string {
	return strconv.FormatFloat(100*float64(part)/float64(max(1, whole)), 'f', decimals, 64)
}

// segment is a part of the bar of the wall time, with its entry in the legend.
type segment struct {
	Fill, Name string
	NS         int64
	X, Width   string // percent
}

// segments divides the wall time among the stages that took at least half a percent, over all phases and layers, the
// other stages, idle time and what is left.
func segments(rows []stage) []segment {
	var work []segment
	index := map[string]int{}
	idle, rest := segment{Fill: fill(tables.RowIdle, 0), Name: "idle"},
		segment{Fill: fill(tables.RowResidual, 0), Name: "unaccounted"}
	copies := segment{Fill: "kcopy", Name: "copies and sets"}
	sum := int64(0)
	for _, s := range rows {
		sum += s.Exclusive
		to := &idle
		switch {
		case s.Kind == tables.RowResidual:
			to = &rest
		case s.IsCopy:
			to = &copies
		case s.IsWork():
			i, ok := index[s.Title]
			if !ok {
				i = len(work)
				index[s.Title] = i
				work = append(work, segment{Fill: s.Fill(), Name: s.Title})
			}
			to = &work[i]
		}
		to.NS += s.Exclusive - s.Copies
		copies.NS += s.Copies
	}
	slices.SortStableFunc(work, func(a, b segment) int { return cmp.Compare(b.NS, a.NS) })
	named := 0
	for named < min(len(work), classes) && work[named].NS >= sum/200 {
		named++
	}
	if n := len(work) - named; n > 1 {
		others := segment{Fill: fill(tables.RowOther, 0), Name: humanize.Count(n, "other", "others")}
		for _, s := range work[named:] {
			others.NS += s.NS
		}
		work = append(work[:named], others)
	}
	var all []segment
	var at int64
	for _, s := range append(work, copies, idle, rest) {
		if s.NS <= 0 {
			continue
		}
		s.X, s.Width = percent(at, sum, 3), percent(s.NS, sum, 3)
		at += s.NS
		all = append(all, s)
	}
	return all
}
