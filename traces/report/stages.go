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
	"gpt2scope/internal/table"
	"gpt2scope/traces/tables"
)

// stage is a row of the page's table: a stage over all layers, one of its layers, a kernel, or idle time.
type stage struct {
	tables.Row
	Layers []stage // one for each row that it sums, if there are several
	Title  string  // the name, without what all names of its kind share
	Launch string  // of a kernel: its grid and block
	Help   string  // what the stage or kernel does, or the idle time is
	Class  int     // colour; -1 for none
	Bar    string  // length of the bar, % of the longest
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
func (s stage) IDs() string { return idsOf(s.Of) }

func idsOf(rows []int) string { return strings.Trim(fmt.Sprint(rows), "[]") }

// foldedRows are the rows of a table, those of a stage of all layers as one.
func foldedRows(t *tables.Table) (folded []tables.Row) {
	switch {
	case t.Folded != nil:
		return t.Folded
	case t.By == tables.ByStage:
		return tables.FoldLayers(t)
	}
	for i := range t.Rows {
		folded = append(folded, t.Rows[i])
		folded[i].Of = []int{i}
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
	row := func(r *tables.Row, class int, of []int) stage {
		s := stage{Row: *r, Title: r.Name, Class: class, Bar: percent(r.Exclusive, longest, 2)}
		s.Of = of
		if r.Shape.Known() {
			s.Launch = tables.Dims(r.Shape.Grid) + " blocks of " + tables.Dims(r.Shape.Block)
			if r.Shape.Blocks() == 1 {
				s.Launch = "1 block of " + tables.Dims(r.Shape.Block)
			}
		}
		if _, ok := t.Roofline(r); ok {
			s.Limit = limits[r.Bound]
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
		s := row(f, class, f.Of)
		if len(f.Of) > 1 {
			for _, i := range f.Of {
				s.Layers = append(s.Layers, row(&t.Rows[i], class, []int{i}))
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

// shownColumns are those of [tables.Columns] that the page shows, with their classes: those of "more" are not shown
// where there is little room.
var shownColumns = []struct{ key, class string }{{"time", "time"}, {"copies", "more"}, {"share", "pc"},
	{"bar", "barcell"}, {"roofline", ""}, {"floor", "more"}, {"gb_per_s", "more"}, {"tflop_per_s", "more"},
	{"calls", "more"}, {"kernels", "more"}, {"weights", "more"}, {"inputs", "more"}, {"compute", "more"},
	{"imbalance", "more"}, {"host", "more"}, {"busy", "more"}, {"median", "more"}}

// columns lists the columns that have a value in some row.
func (p *page) columns() (all []column) {
	if head := map[tables.By]string{tables.ByStage: "phase", tables.ByKernel: "launched as"}[p.Table.By]; head != "" {
		all = append(all, column{"phase", head, "", "", "text more", func(s *stage) string { return cmp.Or(s.Phase, s.Launch) }})
	}
	columns := tables.Columns(p.Table, tables.ByFolded)
	for _, shown := range shownColumns {
		if shown.key == "bar" {
			all = append(all, column{Class: shown.class})
			continue
		}
		for _, c := range columns {
			text := func(s *stage) string {
				cell := c.Cell(&s.Row).Text
				return unless(cell == table.Missing.Text && shown.key != "share", cell)
			}
			is := c.Key == shown.key && c.Title != ""
			if !is || !slices.ContainsFunc(p.Stages, func(s stage) bool { return text(&s) != "" }) {
				continue
			}
			head, unit := c.Title, ""
			if name, isTime := strings.CutSuffix(head, " us"); isTime {
				head, unit = name, "µs"
			}
			all = append(all, column{c.Key, head, unit, c.Legend, shown.class, text})
		}
	}
	return all
}

// limits say what bounds the floor of a row.
var limits = map[string]string{ceilings.BoundBytes: "limited by bandwidth",
	ceilings.BoundFLOPs: "limited by arithmetic"}

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
