package schedule

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"gpt2scope/internal/chart"
	"gpt2scope/internal/humanize"
)

// Gantt draws a result as an SVG picture: for each task in flight on a device a row of when tasks were expected to run,
// as they began, above a row of when they ran.
func Gantt(w io.Writer, r Result, devices []Device, kinds []string) error {
	panel := chart.Panel{X: chart.Axis{Name: "time", Unit: "us", Zero: true}, Kinds: kinds}
	byStart := slices.SortedStableFunc(slices.Values(r.Done), func(a, b Done) int {
		return cmp.Compare(a.Actual.Start, b.Actual.Start)
	})
	for d, device := range devices {
		rows := make([]chart.Row, 2*device.Slots)
		rows[0].Name, rows[1].Name = device.Name+" expected", device.Name+" actual"
		ends := make([]float64, device.Slots)
		for _, done := range byStart {
			if done.Device == d {
				lane := slices.Index(ends, slices.Min(ends))
				ends[lane] = done.Actual.End
				for i, s := range []Span{done.Plan, done.Actual} {
					row := &rows[2*lane+i]
					row.Spans = append(row.Spans, chart.Span{Kind: done.Job.Kind, Start: s.Start, End: s.End})
				}
			}
		}
		panel.Rows = append(panel.Rows, rows...)
	}
	unit, divisor := humanize.Multiple("us", r.MakespanUs)
	title := fmt.Sprintf("%s: %d tasks in %s %s", r.Policy, len(r.Done), humanize.Short(r.MakespanUs/divisor), unit)
	svg, err := chart.Picture{Title: title, Panels: []chart.Panel{panel}}.SVG()
	if err == nil {
		_, err = w.Write(svg)
	}
	return err
}
