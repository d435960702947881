package page

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"

	"gpt2scope/learn"
)

// Lengths in pixels of all pictures.
const (
	left    = 72
	right   = 16
	rowStep = 26
	legend  = 20
	above   = 16 // of the name above a row
	colours = 8  // that page.css has
)

// format has the lengths in pixels that differ between wide and narrow windows.
type format struct {
	class  string
	width  float64
	height float64 // of the area of lines
	labels float64 // of the names of rows beside them; 0 if they stand above
	values float64 // of the values of bars
	legend int     // names of lines in a row
}

var formats = []format{
	{"wide", 640, 300, 250, 120, 2},
	{"narrow", 360, 220, 0, 60, 1},
}

// step is the height of a row.
func (f format) step() float64 {
	if f.labels == 0 {
		return rowStep + above
	}
	return rowStep
}

// row writes the name of a row whose top is given, and returns the top of what it shows.
func (f format) row(b *strings.Builder, name string, top float64) float64 {
	if f.labels == 0 {
		text(b, "label", 4, top+10, name)
		return top + above
	}
	text(b, "label end", f.labels-8, top+12, name)
	return top
}

// left is where rows begin.
func (f format) left() float64 { return max(f.labels, 10) }

// draw makes an SVG element of a picture for each format, of which page.css shows one, "" if the picture has nothing to show.
func draw(p *learn.Picture) string {
	if p == nil {
		return ""
	}
	var all strings.Builder
	for _, f := range formats {
		var b strings.Builder
		var h int
		switch {
		case len(p.Bars) > 0:
			h = f.drawBars(&b, p)
		case len(p.Spans) > 0:
			h = f.drawSpans(&b, p)
		default:
			h = f.drawLines(&b, p)
		}
		if h == 0 {
			return ""
		}
		fmt.Fprintf(&all, "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"%s\" viewBox=\"0 0 %.0f %d\" role=\"img\" aria-label=\"%s\">\n%s</svg>", f.class, f.width, h, html.EscapeString(p.Title), &b)
	}
	return all.String()
}

// scale maps values to pixels.
type scale struct {
	low, high float64 // of values
	from, to  float64 // pixels
	log       bool
}

// newScale has room for all values that can be shown; ok is false if there are none.
func newScale(values []float64, log, fromZero bool, from, to float64) (s scale, ok bool) {
	values = slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return !shown(v, log) })
	if len(values) == 0 {
		return s, false
	}
	s = scale{slices.Min(values), slices.Max(values), from, to, log}
	switch {
	case log && s.low == s.high:
		s.low, s.high = s.low/2, s.high*2
	case fromZero && !log:
		s.low, s.high = min(0, s.low), max(0, s.high)
	}
	if s.low == s.high {
		s.low, s.high = s.low-1, s.high+1
	}
	return s, true
}

// shown tells whether a value has a place on an axis.
func shown(v float64, log bool) bool {
	return !math.IsNaN(v) && !math.IsInf(v, 0) && (!log || v > 0)
}

func (s scale) at(v float64) float64 {
	low, high := s.low, s.high
	if s.log {
		v, low, high = math.Log(v), math.Log(low), math.Log(high)
	}
	return s.from + (v-low)/(high-low)*(s.to-s.from)
}

// ticks are up to about eight round values.
func (s scale) ticks() (ticks []float64) {
	if s.log {
		decades := math.Log10(s.high / s.low)
		every := max(1, int(math.Ceil(decades/7)))
		for e := int(math.Ceil(math.Log10(s.low) - 1e-9)); e <= int(math.Floor(math.Log10(s.high)+1e-9)); e++ {
			if e%every == 0 {
				ticks = append(ticks, math.Pow(10, float64(e)))
			}
		}
		if len(ticks) > 1 {
			return ticks
		}
		ticks = nil
	}
	step := math.Pow(10, math.Floor(math.Log10((s.high-s.low)/4)))
	for _, m := range []float64{5, 2} {
		if (s.high-s.low)/(step*m) >= 4 {
			step *= m
			break
		}
	}
	for i := math.Ceil(s.low/step - 1e-9); i*step <= s.high*(1+1e-9); i++ {
		if v := i*step + 0; shown(v, s.log) { // -0 + 0 is 0
			ticks = append(ticks, v)
		}
	}
	return ticks
}

// short writes a value of an axis: 20k for 20,000.
func short(v float64) string {
	for _, unit := range []struct {
		size   float64
		letter string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if math.Abs(v) >= unit.size {
			return strconv.FormatFloat(v/unit.size, 'g', 4, 64) + unit.letter
		}
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

func text(b *strings.Builder, class string, x, y float64, s string) {
	fmt.Fprintf(b, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", class, x, y, html.EscapeString(s))
}

func segment(b *strings.Builder, class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(b, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", class, x1, y1, x2, y2)
}

// xAxis draws the ticks, the lines above them and the name of the horizontal axis, whose top is at y, and returns its bottom.
func xAxis(b *strings.Builder, s scale, name string, top, y float64) float64 {
	for _, v := range s.ticks() {
		segment(b, "grid", s.at(v), top, s.at(v), y)
		text(b, "tick middle", s.at(v), y+15, short(v))
	}
	text(b, "name middle", (s.from+s.to)/2, y+33, name)
	return y + 42
}

func (f format) drawBars(b *strings.Builder, p *learn.Picture) int {
	var all []float64
	for _, bar := range p.Bars {
		all = append(all, bar.Value, bar.Low, bar.High)
	}
	s, ok := newScale(all, p.X.Log, true, f.left(), f.width-f.values)
	if !ok {
		return 0
	}
	if p.X.Log { // bars begin left of the least value
		s.low /= 2
	}
	bottom := float64(len(p.Bars))*f.step() + 4
	end := xAxis(b, s, p.X.Name, 0, bottom)
	zero := s.from
	if !p.X.Log {
		zero = s.at(0)
	}
	for i, bar := range p.Bars {
		y := f.row(b, bar.Name, float64(i)*f.step()+6)
		if !shown(bar.Value, p.X.Log) {
			text(b, "value", f.left()+6, y+12, short(bar.Value))
			continue
		}
		x := s.at(bar.Value)
		fmt.Fprintf(b, "<rect class=\"c0\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"16\"/>\n", min(zero, x), y, max(1, math.Abs(x-zero)))
		farthest := max(x, zero)
		if shown(bar.Low, p.X.Log) && shown(bar.High, p.X.Log) && bar.High > bar.Low {
			segment(b, "interval", s.at(bar.Low), y+8, s.at(bar.High), y+8)
			for _, at := range []float64{bar.Low, bar.High} {
				segment(b, "interval", s.at(at), y+4, s.at(at), y+12)
			}
			farthest = max(farthest, s.at(bar.High))
		}
		text(b, "value", farthest+6, y+12, short(round(bar.Value)))
	}
	return int(end)
}

// round keeps four significant digits.
func round(v float64) float64 {
	r, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
	return r
}

func (f format) drawLines(b *strings.Builder, p *learn.Picture) int {
	var xs, ys []float64
	for _, l := range p.Lines {
		for i := range min(len(l.X), len(l.Y)) {
			if shown(l.X[i], p.X.Log) && shown(l.Y[i], p.Y.Log) {
				xs, ys = append(xs, l.X[i]), append(ys, l.Y[i])
			}
		}
	}
	columns := f.legend
	top := float64(legend*((len(p.Lines)+columns-1)/columns) + 8)
	x, okX := newScale(xs, p.X.Log, false, left, f.width-right)
	y, okY := newScale(ys, p.Y.Log, true, top+f.height, top)
	if !okX || !okY {
		return 0
	}
	end := xAxis(b, x, p.X.Name, top, top+f.height)
	for _, v := range y.ticks() {
		segment(b, "grid", left, y.at(v), f.width-right, y.at(v))
		text(b, "tick end", left-6, y.at(v)+4, short(v))
	}
	fmt.Fprintf(b, "<text class=\"name middle\" transform=\"translate(14 %.1f) rotate(-90)\">%s</text>\n", top+f.height/2, html.EscapeString(p.Y.Name))
	for i, l := range p.Lines {
		class := "s" + strconv.Itoa(i%colours)
		column := left + float64(i%columns)*(f.width-left-right)/float64(columns)
		row := float64(i/columns*legend) + 8
		segment(b, "line "+class, column, row, column+22, row)
		text(b, "label", column+28, row+4, l.Name)
		var points []string
		for k := range min(len(l.X), len(l.Y)) {
			if shown(l.X[k], p.X.Log) && shown(l.Y[k], p.Y.Log) {
				points = append(points, fmt.Sprintf("%.1f,%.1f", x.at(l.X[k]), y.at(l.Y[k])))
			}
		}
		fmt.Fprintf(b, "<polyline class=\"line %s\" points=\"%s\"/>\n", class, strings.Join(points, " "))
		if len(points) <= 60 {
			for _, at := range points {
				cx, cy, _ := strings.Cut(at, ",")
				fmt.Fprintf(b, "<circle class=\"c%d\" cx=\"%s\" cy=\"%s\" r=\"3\"/>\n", i%colours, cx, cy)
			}
		}
	}
	return int(end)
}

func (f format) drawSpans(b *strings.Builder, p *learn.Picture) int {
	var names, kinds []string
	var all []float64
	for _, s := range p.Spans {
		if !slices.Contains(names, s.Row) {
			names = append(names, s.Row)
		}
		if !slices.Contains(kinds, s.Name) {
			kinds = append(kinds, s.Name)
		}
		all = append(all, s.Start, s.End)
	}
	s, ok := newScale(all, false, false, f.left(), f.width-right)
	if !ok {
		return 0
	}
	top := float64(legend*((len(kinds)+2)/3) + 8)
	bottom := top + float64(len(names))*f.step()
	end := xAxis(b, s, p.X.Name, top, bottom)
	for i, kind := range kinds {
		x, y := left+float64(i%3)*(f.width-left-right)/3, float64(i/3*legend)+2
		fmt.Fprintf(b, "<rect class=\"c%d\" x=\"%.1f\" y=\"%.1f\" width=\"14\" height=\"12\"/>\n", i%colours, x, y)
		text(b, "label", x+20, y+10, kind)
	}
	rows := map[string]float64{} // the tops of what they show
	for i, name := range names {
		rows[name] = f.row(b, name, top+float64(i)*f.step()+4)
	}
	for _, span := range p.Spans {
		if !shown(span.Start, false) || !shown(span.End, false) {
			continue
		}
		y := rows[span.Row]
		fmt.Fprintf(b, "<rect class=\"c%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"16\"><title>%s</title></rect>\n",
			slices.Index(kinds, span.Name)%colours, s.at(span.Start), y, max(1, s.at(span.End)-s.at(span.Start)), html.EscapeString(span.Name))
	}
	return int(end)
}
