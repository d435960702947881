package report

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"gpt2scope/internal/humanize"
	"gpt2scope/internal/stats"
	"gpt2scope/traces"
	"gpt2scope/traces/tables"
)

// Options say what a page is of.
type Options struct {
	Name   string // of the recording, for the title
	Device int32  // GPU; -1 for the first that worked
}

// gapsShown is how many of the longest gaps the page lists.
const gapsShown = 20

//go:embed page
var files embed.FS

// page is what the template has.
type page struct {
	Name      string
	Source    string
	Style     template.CSS
	Script    template.JS
	StyleHash string
	Hash      string
	Data      template.JS

	Sentence  string
	Table     *tables.Table
	ByStage   bool
	Before    string
	Wall      string
	Sum       string
	SumShare  string
	Withheld  bool
	Trusted   []string // findings that do not mislead
	Misleads  []string
	Stages    []stage
	Segments  []segment
	Idle      []stage
	WorkTitle string
	Costs     bool // FLOPs and bytes of a stage are known
	Floors    bool // and ceilings

	Roofline string // why there is none, or what it lacks
	HasRoof  bool

	Queue   string // why there is none
	Summary []fact

	Gaps     []gapRow
	GapsAll  string
	Facts    []fact
	Overhead []fact
	Energy   []fact
	Events   string
	Tracks   int
}

// segment is a row of the table in the bar of the whole wall time; positions are
// percents.
type segment struct{ Class, X, Width, Title string }

// gapRow is a gap, as the page shows it.
type gapRow struct {
	From, To   int64 // ns after the origin
	At         string
	Length     string
	Cause      string
	Prev, Next string
	Stage      string
}

// data is what the script has.
type data struct {
	*timeline
	Rows     []rowJSON `json:"rows"`
	Roofline roofline  `json:"roofline"`
	Queue    queueJSON `json:"queue"`
	Device   int32     `json:"device"`
}

// rowJSON is a row of the table.
type rowJSON struct {
	Name  string `json:"name"`
	Phase string `json:"phase"`
	Class int    `json:"class"` // colour, -1 for none
	Work  bool   `json:"work"`
}

// Write writes the page of a trace, by stage where it has passes of a model, else by
// kernel.
func Write(w io.Writer, t *traces.Trace, o Options) error {
	table, err := tables.SummarizeAny(t, o.Device)
	if err != nil {
		return err
	}
	p, d := assemble(t, table, o)
	if p.Data, err = asJS(d); err != nil {
		return err
	}
	style, err := files.ReadFile("page/page.css")
	if err != nil {
		return err
	}
	script, err := scripts()
	if err != nil {
		return err
	}
	p.Style, p.StyleHash = template.CSS(style), hash(style)
	p.Script, p.Hash = template.JS(script), hash(script)
	tmpl, err := template.ParseFS(files, "page/page.html")
	if err != nil {
		return err
	}
	return tmpl.ExecuteTemplate(w, "page.html", p)
}

// asJS writes a value as JSON for a script element: encoding/json writes <, > and &
// as \u003c and the like, so that no text ends the element.
func asJS(v any) (template.JS, error) {
	b, err := json.Marshal(v)
	return template.JS(b), err
}

// scripts joins the parts of the script, in the order of their names, into one function.
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

// hash is what the page's policy allows a script or style by.
func hash(text []byte) string {
	sum := sha256.Sum256(text)
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// assemble gathers what the page says, and what its script draws.
func assemble(t *traces.Trace, table *tables.Table, o Options) (*page, *data) {
	c := ceilingsOf(t.Header, table.Device)
	rows := stages(table)
	line := newTimeline(t, table)
	d := &data{timeline: line, Rows: []rowJSON{}, Roofline: newRoofline(table, c), Device: table.Device}
	p := &page{Name: o.Name, Source: t.Header.Describe(), Sentence: sentence(table), Table: table, ByStage: table.By == tables.ByStage,
		Wall: duration(table.Wall), Withheld: traces.Misleads(table.Findings), SumShare: "-", WorkTitle: "Kernels",
		Floors: c.known(), Facts: facts(t), Overhead: overhead(t.Header), Energy: energy(t.Header),
		Events: humanize.Thousands(int64(line.events)), Tracks: len(line.Tracks)}
	if table.Before > 0 {
		p.Before = duration(table.Before)
	}
	if table.Device < 0 {
		p.WorkTitle = "Events"
	}
	var sum tables.Row
	for i, s := range rows {
		sum.Exclusive += s.NS
		d.Rows = append(d.Rows, rowJSON{s.Name, s.Phase, s.Class, s.IsWork()})
		p.Stages = append(p.Stages, s)
		if table.Rows[i].Kind == tables.RowIdle {
			p.Idle = append(p.Idle, s)
		}
	}
	p.Segments = segments(rows, sum.Exclusive)
	p.Sum = micros(sum.Exclusive)
	if v, ok := table.Share(&sum); ok {
		p.SumShare = fmt.Sprintf("%.2f", v)
	}
	for _, f := range table.Findings {
		if f.Misleads {
			p.Misleads = append(p.Misleads, f.Text)
		} else {
			p.Trusted = append(p.Trusted, f.Text)
		}
	}
	p.Costs = slices.ContainsFunc(table.Rows, func(r tables.Row) bool { return r.FLOPs > 0 || r.Bytes > 0 })
	p.Floors = p.Floors && p.Costs
	p.HasRoof = len(d.Roofline.Points) > 0
	switch {
	case !p.HasRoof:
		p.Roofline = "There is no roofline: the recording has no FLOPs and bytes of its stages."
	case !c.known():
		p.Roofline = "The recording has no ceilings measured on this device, so that the roof is missing: 'infer bench ceilings' measures them."
	}
	p.gaps(table, line)
	p.queue(newQueue(table), line, d, t.Header)
	return p, d
}

// segments lays the rows side by side, idle time and the residual last.
func segments(rows []stage, sum int64) []segment {
	var all []segment
	var at int64
	for _, s := range rows {
		if s.NS <= 0 || sum <= 0 {
			continue
		}
		percent := func(ns int64) string { return strconv.FormatFloat(100*float64(ns)/float64(sum), 'f', 3, 64) }
		title := fmt.Sprintf("%s %s: %s µs", s.Phase, s.Name, s.Time)
		all = append(all, segment{s.Fill(), percent(at), percent(s.NS), strings.TrimSpace(title)})
		at += s.NS
	}
	return all
}

// largest returns the n longest gaps, longest first.
func largest(gaps []tables.Gap, n int) []tables.Gap {
	sorted := slices.Clone(gaps)
	slices.SortStableFunc(sorted, func(a, b tables.Gap) int { return cmp.Compare(b.Length(), a.Length()) })
	return sorted[:min(n, len(sorted))]
}

// gaps fills in the ledger of idle time.
func (p *page) gaps(table *tables.Table, line *timeline) {
	gaps := table.Gaps
	p.GapsAll = humanize.Count(len(gaps), "gap", "gaps")
	name := func(e *traces.Event) string {
		if e == nil {
			return ""
		}
		return e.Name
	}
	for _, g := range largest(gaps, gapsShown) {
		row := gapRow{From: g.From - line.origin, To: g.To - line.origin, At: fmt.Sprintf("%.6f", float64(g.From-line.origin)/1e6), Length: micros(g.Length()), Prev: name(g.Before), Next: name(g.Next)}
		var parts []string
		for _, part := range g.Causes {
			if len(g.Causes) == 1 {
				parts = append(parts, part.Name)
			} else {
				parts = append(parts, fmt.Sprintf("%s %s", part.Name, duration(part.Time)))
			}
		}
		row.Cause = strings.Join(parts, ", ")
		if g.Next == nil {
			row.Next = "the end"
		} else if i := table.RowOf(g.Next); i >= 0 && table.By == tables.ByStage {
			row.Stage = strings.TrimSpace(table.Rows[i].Phase + " " + table.Rows[i].Name)
			if row.Next == table.Rows[i].Name { // a step of the CPU
				row.Next = ""
			}
		}
		p.Gaps = append(p.Gaps, row)
	}
}

// queue fills in what is known of launches.
func (p *page) queue(q *queue, line *timeline, d *data, h *traces.Header) {
	d.Queue = q.json(line)
	if len(q.launches) == 0 {
		p.Queue = "The recording pairs no API calls with work of this GPU, so that there are no queueing delays."
		if d.Device < 0 {
			p.Queue = "The CPU has no launches."
		} else if h.Recorder == traces.RecorderStamps {
			p.Queue = "Stamps record no API calls, so that there are no queueing delays; the recorder cupti has them."
		}
		return
	}
	kernels, early := 0, 0
	for _, l := range q.launches {
		kernels += len(l.Ends)
		if l.First.Time < l.Call.End() {
			early++
		}
	}
	p.Summary = []fact{
		{"launches", fmt.Sprintf("%s, of %s", humanize.Thousands(int64(len(q.launches))), humanize.Count(kernels, "kernel, copy or set", "kernels, copies and sets"))},
		{"API time", fmt.Sprintf("median %s, 90 %% below %s, at most %s", duration(stats.Quantile(q.times, 0.5)), duration(stats.Quantile(q.times, 0.9)), duration(stats.Quantile(q.times, 1)))},
		{"queueing delay", fmt.Sprintf("median %s, 90 %% below %s, at most %s", duration(stats.Quantile(q.delays, 0.5)), duration(stats.Quantile(q.delays, 0.9)), duration(stats.Quantile(q.delays, 1)))},
		{"begun before the call returned", humanize.Thousands(int64(early))},
		{"deepest queue", humanize.Count(q.deepest, "kernel, copy or set", "kernels, copies and sets")},
		{"nothing queued, nothing running", fmt.Sprintf("%s of %s", duration(q.starved), p.Wall)},
	}
}
