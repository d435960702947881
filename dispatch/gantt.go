package dispatch

import (
	"bufio"
	"cmp"
	"fmt"
	"html"
	"io"
	"math"
	"slices"
)

// Sizes of the picture, in pixels.
const (
	ganttWidth  = 960.0
	ganttLeft   = 150.0 // names of devices
	ganttRight  = 12.0
	ganttRow    = 26.0
	ganttBottom = 34.0
)

// ganttColours are of kinds of task; each can be told from its neighbours by its lightness too.
var ganttColours = []string{"#0b4f96", "#c2550a", "#1f7a4d", "#7a3e9d", "#8a6d00", "#a3234f", "#3b8ea5", "#57606a", "#e58fb8", "#86b84c", "#8fb8de", "#d9a441"}

// Gantt draws a result as an SVG picture: for each device what was predicted for each job, when it
// began, above what it took. Jobs that overlap on a device, as copies and
// work do, get rows of their own.
func Gantt(w io.Writer, r Result, kinds []string) error {
	kindOf := func(d *Done) int { return d.Job.Class }
	type bar struct {
		Span
		done *Done
	}
	// rows lays spans out without overlap.
	rows := func(device int, span func(*Done) Span) [][]bar {
		var all []bar
		for i := range r.Done {
			if d := &r.Done[i]; d.Device == device {
				all = append(all, bar{span(d), d})
			}
		}
		slices.SortStableFunc(all, func(a, b bar) int { return cmp.Compare(a.Start, b.Start) })
		lanes := make([][]bar, 0, 2)
		for _, b := range all {
			to := -1
			for i, lane := range lanes {
				if lane[len(lane)-1].End <= b.Start+1e-9 && to < 0 {
					to = i
				}
			}
			if to < 0 && len(lanes) < max(1, r.Devices[device].InFlight+r.Devices[device].Lanes) {
				lanes = append(lanes, nil)
				to = len(lanes) - 1
			}
			if to < 0 { // a prediction may overlap more: on the lane that ends first
				to = 0
				for i := range lanes {
					if lanes[i][len(lanes[i])-1].End < lanes[to][len(lanes[to])-1].End {
						to = i
					}
				}
			}
			lanes[to] = append(lanes[to], b)
		}
		return lanes
	}
	type row struct {
		name  string
		bars  []bar
		faint bool
	}
	var all []row
	end := 0.0
	for d := range r.Devices {
		for _, part := range []struct {
			name  string
			span  func(*Done) Span
			faint bool
		}{{"predicted", func(d *Done) Span { return d.Plan }, true}, {"actual", func(d *Done) Span { return d.Actual }, false}} {
			for i, lane := range rows(d, part.span) {
				name := ""
				if i == 0 {
					name = r.Devices[d].Name + " " + part.name
				}
				all = append(all, row{name, lane, part.faint})
				for _, b := range lane {
					end = math.Max(end, b.End)
				}
			}
		}
	}
	if end == 0 {
		end = 1
	}
	type place struct{ X, Y float64 }
	var legend []place
	next := place{12, 36}
	for _, k := range kinds {
		width := 15 + 7*float64(len(k)) + 18
		if next.X+width > ganttWidth && next.X > 12 {
			next = place{12, next.Y + 18}
		}
		legend = append(legend, next)
		next.X += width
	}
	top := next.Y + 28
	height := top + ganttRow*float64(len(all)) + ganttBottom
	scale := (ganttWidth - ganttLeft - ganttRight) / end
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" width="%g" height="%g" font-family="sans-serif" font-size="12">`+"\n", ganttWidth, height, ganttWidth, height)
	fmt.Fprintf(b, `<rect width="%g" height="%g" fill="#ffffff"/>`+"\n", ganttWidth, height)
	fmt.Fprintf(b, `<text x="12" y="24" font-size="16" font-weight="bold" fill="#1b1f24">%s: %d tasks in %s</text>`+"\n", html.EscapeString(r.Policy), len(r.Done), ganttTime(r.Makespan))
	for i, k := range kinds {
		x, y := legend[i].X, legend[i].Y
		fmt.Fprintf(b, `<rect x="%.1f" y="%g" width="11" height="11" fill="%s"/><text x="%.1f" y="%g" fill="#1b1f24">%s</text>`+"\n", x, y, ganttColours[i%len(ganttColours)], x+15, y+10, html.EscapeString(k))
	}
	step := ganttStep(end)
	for t := 0.0; t <= end; t += step {
		at := ganttLeft + t*scale
		fmt.Fprintf(b, `<path d="M%.1f %g V%.1f" stroke="#e4e8ec"/><text x="%.1f" y="%.1f" text-anchor="middle" fill="#57606a">%s</text>`+"\n", at, top, height-ganttBottom, at, height-ganttBottom+16, ganttTime(t))
	}
	for i, row := range all {
		y := top + ganttRow*float64(i)
		fmt.Fprintf(b, `<text x="12" y="%.1f" fill="#1b1f24">%s</text>`+"\n", y+17, html.EscapeString(row.name))
		for _, bar := range row.bars {
			colour := ganttColours[kindOf(bar.done)%len(ganttColours)]
			fill := fmt.Sprintf(`fill="%s"`, colour)
			if row.faint {
				fill = fmt.Sprintf(`fill="%s" fill-opacity="0.25" stroke="%s" stroke-width="0.7"`, colour, colour)
			} else {
				fill += ` stroke="#ffffff" stroke-width="0.4"`
			}
			fmt.Fprintf(b, `<rect x="%.2f" y="%.1f" width="%.2f" height="%g" %s><title>%s %s: %s</title></rect>`+"\n", ganttLeft+bar.Start*scale, y+4, math.Max(0.4, (bar.End-bar.Start)*scale), ganttRow-7, fill,
				html.EscapeString(bar.done.Job.Task), html.EscapeString(bar.done.Job.Shape), ganttTime(bar.End-bar.Start))
		}
	}
	fmt.Fprint(b, "</svg>\n")
	return b.Flush()
}

// ganttStep is the distance of marks on the axis of time, in us.
func ganttStep(end float64) float64 {
	step := math.Pow(10, math.Floor(math.Log10(end/4)))
	for _, f := range []float64{5, 2} {
		if end/(step*f) >= 4 {
			return step * f
		}
	}
	return step
}

// ganttTime writes us in a unit that fits.
func ganttTime(us float64) string {
	switch {
	case us == 0:
		return "0"
	case us < 1000:
		return fmt.Sprintf("%.3g us", us)
	case us < 1e6:
		return fmt.Sprintf("%.4g ms", us/1e3)
	}
	return fmt.Sprintf("%.4g s", us/1e6)
}
