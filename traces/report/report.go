package report

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"slices"
	"strings"

	"gpt2scope/internal/humanize"
	"gpt2scope/internal/webpage"
	"gpt2scope/traces"
	"gpt2scope/traces/judge"
	"gpt2scope/traces/tables"
	"gpt2scope/traces/window"
)

// Options describe the page.
type Options struct {
	Name   string // of the recording, for the title
	Device int32  // GPU; -1 for the first one that worked, or the CPU
}

// gapsShown is how many of the longest gaps the page lists.
const gapsShown = 20

//go:embed page
var files embed.FS

// page is the template's data.
type page struct {
	colours map[int]string // of classes, the program's own

	Head   webpage.Head
	Name   string
	Source string
	Data   template.JS

	Sentence  string
	Table     *tables.Table
	ByStage   bool
	OnCPU     bool
	Noun      string // what a row of work is
	Whole     string // the time that the table covers
	Sum       int64  // ns of all rows
	SumShare  string
	Withheld  bool
	Remarks   []string // findings that do not mislead
	Misleads  []string
	Stages    []stage
	Layers    bool // some stages have rows of several layers
	Segments  []segment
	Columns   []column
	WorkTitle string // what the events of a row are called
	Costs     bool   // FLOPs and bytes of stages are known
	Floors    bool   // and their least times
	TooFast   string // what rows that are faster than their least time say of the ceilings

	SMs *sms // nil if it is not known what they did

	Advice   []judge.Hint  // the largest first, with places after the origin
	AdviceOf string        // the time that it is of, if that is not the table's
	Report   *judge.Report // nil on the CPU

	Gaps    []gapRow
	GapsAll string
	Facts   []fact
	Events  string
	Tracks  int
	Thinned string // what is shorter is not drawn alone, "" if all is
}

// advise adds what rules find worth a percent of the wall time, the indicators, and what they answer. It returns the
// places of what was found.
func (p *page) advise(table *tables.Table, origin int64) (places []window.Interval) {
	steady := table.Steady()
	advice, report := judge.Both(steady)
	p.Report, p.AdviceOf = report, unless(advice.Wall == table.Wall, duration(advice.Wall))
	for _, h := range advice.Above(judge.WorthPercent) {
		if h.To > 0 {
			places = append(places, window.Interval{From: h.From, To: h.To})
			h.From, h.To = h.From-origin, h.To-origin
		}
		p.Advice = append(p.Advice, h)
	}
	return places
}

// gapRow is a gap of the list of the longest.
type gapRow struct {
	From, To int64 // ns after the origin
	At       string
	Length   string
	Cause    string
	Next     string
	Stage    string
}

// data is the script's data.
type data struct {
	*timeline
	Rows []rowJSON `json:"rows"`
	SMs  *smsJSON  `json:"sms,omitempty"`
}

// rowJSON is a row of the table, one for each layer.
type rowJSON struct {
	Name  string `json:"name"`
	Phase string `json:"phase"`
	Class int    `json:"class"` // colour, -1 for none
	Help  string `json:"help,omitempty"`
}

// Write writes the page of a trace: by stage, or by kernel if the trace has no passes of a model. It fails if the
// device did no work.
func Write(w io.Writer, t *traces.Trace, o Options) error {
	table, err := tables.SummarizeAny(t, o.Device)
	if err != nil {
		return err
	}
	p, d := assemble(t, table, o)
	script, err := json.Marshal(d) // which writes <, > and & such that no text can end the element
	if err != nil {
		return err
	}
	p.Data = template.JS(script)
	css, err := files.ReadFile("page/page.css")
	if err != nil {
		return err
	}
	if script, err = scripts(); err != nil {
		return err
	}
	p.Head = webpage.Head{Title: "where the time went", Style: template.CSS(string(css) + style(p.colours)), Script: template.JS(script)}
	if p.Name != "" {
		p.Head.Title = p.Name + ": " + p.Head.Title
	}
	layout, err := files.ReadFile("page/page.html")
	if err != nil {
		return err
	}
	tmpl, err := webpage.New(string(layout), functions)
	if err != nil {
		return err
	}
	return tmpl.Execute(w, p)
}

// functions are those of the template. A quantity of 0 is not known, and left empty.
var functions = template.FuncMap{
	"micros":  micros,
	"ms":      duration,
	"number":  judge.Number,
	"upper":   func(a judge.Answer) string { return strings.ToUpper(string(a)) },
	"percent": percent,
	"title":   func(s string) string { return strings.ToUpper(s[:1]) + s[1:] },
	"breakable": func(name string) template.HTML { // a line may end after each part of a fused stage
		return template.HTML(strings.ReplaceAll(template.HTMLEscapeString(name), "+", "+<wbr>"))
	},
	"row": func(p *page, s stage, layer bool) rowData { return rowData{p, s, layer} },
}

// rowData is what the template of a row of the stage table needs.
type rowData struct {
	Page  *page
	Stage stage
	Layer bool // a row of one of several layers
}

// unless returns s, or nothing if empty is true.
func unless(empty bool, s string) string {
	if empty {
		return ""
	}
	return s
}

// scripts joins the files of the script, by name, in one function.
func scripts() ([]byte, error) {
	names, err := fs.Glob(files, "page/*.js")
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString("(() => {\n\"use strict\";\n")
	for _, name := range names {
		part, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		b.Write(part)
	}
	b.WriteString("})();\n")
	return b.Bytes(), nil
}

// assemble makes the data of the template and of the script.
func assemble(t *traces.Trace, table *tables.Table, o Options) (*page, *data) {
	rows := stages(table)
	_, own := coloursOf(table, foldedRows(table))
	p := &page{colours: own, Name: o.Name, Source: t.Header.Describe(), Sentence: sentence(table, rows), Table: table,
		ByStage: table.By == tables.ByStage, OnCPU: table.Device < 0, Noun: nouns[table.By],
		Withheld: traces.Misleads(table.Findings), Stages: rows, Segments: segments(rows),
		WorkTitle: "Kernels", Facts: facts(t)}
	origin := t.Events[0].Time
	kept := slices.Concat(p.gaps(table, origin), p.advise(table, origin))
	for _, pass := range table.Window.Passes[:min(2, len(table.Window.Passes))] {
		kept = append(kept, pass.Time)
	}
	line := newTimeline(t, table, kept)
	d := &data{timeline: line, Rows: make([]rowJSON, len(table.Rows))}
	p.Events, p.Tracks = humanize.Thousands(int64(line.events)), len(line.Tracks)
	if line.cell > 0 {
		p.Thinned = duration(line.cell)
	}
	if table.By == tables.ByOp || p.OnCPU {
		p.WorkTitle = "Events"
	}
	var sum tables.Row
	for _, s := range rows {
		sum.Exclusive += s.Exclusive
		p.Layers = p.Layers || len(s.Layers) > 0
		p.Floors = p.Floors || s.Floor > 0
		p.Costs = p.Costs || s.Kind == tables.RowWork && (s.FLOPs > 0 || s.Bytes > 0)
		for _, i := range s.Of {
			d.Rows[i] = rowJSON{table.Rows[i].Name, s.Phase, s.Class, s.Help}
		}
	}
	switch {
	case p.ByStage:
		p.Whole = "from the start of the first pass to the end of the last"
	case p.OnCPU:
		p.Whole = "from the first event to the last"
	default:
		p.Whole = "from the first to the last work of the GPU"
	}
	p.Sum, p.SumShare = sum.Exclusive, "-"
	if v, ok := table.Share(&sum); ok {
		p.SumShare = fmt.Sprintf("%.2f", v)
	}
	for _, f := range table.Findings {
		if f.Misleads {
			p.Misleads = append(p.Misleads, f.Text)
		} else {
			p.Remarks = append(p.Remarks, f.Text)
		}
	}
	p.Remarks = append(p.Remarks, table.Window.GPUNotes()...)
	p.TooFast, _ = table.BelowFloor()
	if p.SMs = newSMs(table); p.SMs != nil {
		d.SMs = &p.SMs.picture
	}
	p.Columns = p.columns()
	return p, d
}

// largest returns the n longest gaps, longest first, and how many there are.
func largest(table *tables.Table, n int) (list []tables.Gap, all int) {
	for g := range table.Gaps {
		all++
		at := len(list)
		for at > 0 && list[at-1].Length() < g.Length() {
			at--
		}
		if at < n {
			kept := *g
			kept.Causes = slices.Clone(g.Causes)
			list = slices.Insert(list, at, kept)
			list = list[:min(n, len(list))]
		}
	}
	return list, all
}

// gaps adds the longest gaps, and returns where they are.
func (p *page) gaps(table *tables.Table, origin int64) (places []window.Interval) {
	gaps, all := largest(table, gapsShown)
	p.GapsAll = humanize.Count(all, "gap", "gaps")
	for _, g := range gaps {
		places = append(places, window.Interval{From: g.From - g.Length(), To: g.To + g.Length()})
		row := gapRow{From: g.From - origin, To: g.To - origin,
			At: fmt.Sprintf("%.6f", float64(g.From-origin)/1e6), Length: micros(g.Length()), Next: "the end"}
		var parts []string
		for _, part := range g.Causes {
			if len(g.Causes) == 1 {
				parts = append(parts, part.Name)
			} else {
				parts = append(parts, fmt.Sprintf("%s %s", part.Name, duration(part.Time)))
			}
		}
		row.Cause = strings.Join(parts, ", ")
		if g.Next != nil {
			row.Next = shortName(g.Next.Name)
			if i := table.RowOf(g.Next); i >= 0 && table.By == tables.ByStage {
				row.Stage = table.Rows[i].Name
				if phase := table.Rows[i].Phase; phase != row.Stage { // a pass without stages is one stage of its own name
					row.Stage = strings.TrimSpace(phase + " " + row.Stage)
				}
				if row.Next == table.Rows[i].Name { // on the CPU, where steps are the work
					row.Next = ""
				}
			}
		}
		p.Gaps = append(p.Gaps, row)
	}
	return places
}
