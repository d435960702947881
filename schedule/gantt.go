package schedule

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"gpt2scope/internal/chart"
	"gpt2scope/internal/humanize"
)

// Gantt draws a result as an SVG picture: for each device when each task was expected to run, as it began, above when
// it ran. Tasks that overlap on a device get rows of their own.
func Gantt(w io.Writer, r Result, kinds []string) error {
	panel := chart.Panel{X: chart.Axis{Name: "time", Unit: "us", Zero: true}, Kinds: kinds}
	for d, device := range r.Devices {
		for _, part := range []struct {
			name  string
			span  func(*Done) Span
			faint bool
		}{{"expected", func(d *Done) Span { return d.Plan }, true}, {"actual", func(d *Done) Span { return d.Actual }, false}} {
			var all []chart.Span
			for i := range r.Done {
				if done := &r.Done[i]; done.Device == d {
					s := part.span(done)
					all = append(all, chart.Span{Kind: done.Job.Kind, Start: s.Start, End: s.End, Faint: part.faint})
				}
			}
			for i, lane := range withoutOverlap(all, device.Slots) {
				name := ""
				if i == 0 {
					name = device.Name + " " + part.name
				}
				panel.Rows = append(panel.Rows, chart.Row{Name: name, Spans: lane})
			}
		}
	}
	unit, divisor := humanize.Multiple("us", r.Makespan)
	title := fmt.Sprintf("%s: %d tasks in %s %s", r.Policy, len(r.Done), humanize.Short(r.Makespan/divisor), unit)
	svg, err := chart.Picture{Title: title, Panels: []chart.Panel{panel}}.SVG()
	if err == nil {
		_, err = w.Write(svg)
	}
	return err
}

// withoutOverlap lays spans out without overlap, on at most so many lanes: an expected time that overlaps more goes on
// the lane that ends first.
func withoutOverlap(spans []chart.Span, most int) [][]chart.Span {
	slices.SortStableFunc(spans, func(a, b chart.Span) int { return cmp.Compare(a.Start, b.Start) })
	var all [][]chart.Span
	end := func(lane []chart.Span) float64 { return lane[len(lane)-1].End }
	for _, s := range spans {
		to := slices.IndexFunc(all, func(lane []chart.Span) bool { return end(lane) <= s.Start+1e-9 })
		if to < 0 && len(all) < most {
			to, all = len(all), append(all, nil)
		}
		if to < 0 {
			first := end(slices.MinFunc(all, func(a, b []chart.Span) int { return cmp.Compare(end(a), end(b)) }))
			to = slices.IndexFunc(all, func(lane []chart.Span) bool { return end(lane) == first })
		}
		all[to] = append(all[to], s)
	}
	return all
}
