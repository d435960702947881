package plot

import (
	"cmp"
	"math"
	"slices"
	"strings"

	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"gpt2scope/internal/palette"
)

// layout is how large a picture is; lengths are pixels.
type layout struct {
	width, height  vg.Length // height is that of a panel with its legend
	xticks, yticks int
	title          bool
}

var (
	filed  = layout{width: 800, height: 400, xticks: 13, yticks: 7, title: true}
	broad  = layout{width: 760, height: 390, xticks: 13, yticks: 7}
	narrow = layout{width: 390, height: 320, xticks: 7, yticks: 6}
)

const (
	margin      = 12
	titleHeight = 42
	rowHeight   = 20 // of the legend
)

// size of a picture of so many panels.
func (l layout) size(panels int) (w, h vg.Length) {
	h = l.height * vg.Length(panels)
	if l.title {
		h += titleHeight
	}
	return l.width, h
}

// drawPanels draws panels below each other, their axes of y at the same place.
func drawPanels(c draw.Canvas, l layout, title string, panels []*panel) {
	c.FillPolygon(palette.Paper, []vg.Point{c.Min, {X: c.Max.X, Y: c.Min.Y}, c.Max, {X: c.Min.X, Y: c.Max.Y}})
	if l.title {
		style := letters(17, palette.Ink, true)
		style.YAlign = text.YTop
		c.FillText(style, vg.Point{X: c.Min.X + margin, Y: c.Max.Y - margin}, title)
		c = draw.Crop(c, 0, 0, 0, -titleHeight)
	}
	height := (c.Max.Y - c.Min.Y) / vg.Length(len(panels))
	plots := make([]*gonum.Plot, len(panels))
	areas := make([]draw.Canvas, len(panels))
	left := vg.Length(0)
	for i, p := range panels {
		area := draw.Crop(c, margin, -margin, 0, 0)
		area.Max.Y = c.Max.Y - height*vg.Length(i)
		area.Min.Y = area.Max.Y - height + margin
		plots[i] = p.plot(l)
		area.Max.Y -= p.legend(area) + 8
		fitLabel(&plots[i].Y, area.Max.Y-area.Min.Y)
		areas[i] = area
		left = max(left, plots[i].DataCanvas(area).Min.X-area.Min.X)
	}
	for i, p := range plots {
		areas[i].Min.X += left - (p.DataCanvas(areas[i]).Min.X - areas[i].Min.X)
		p.Draw(areas[i])
	}
}

// plot makes the axes and adds the series in the order in which they cover each other:
// lines, marks and their intervals, labels. Measurements of the sweep cover
// other lists of layers, whose marks are larger.
func (p *panel) plot(l layout) *gonum.Plot {
	g := gonum.New()
	g.BackgroundColor = nil
	x, y := p.bounds()
	xs, ys := p.scales(l, x, y)
	unit, _ := scaled(p.y.unit, max(math.Abs(y.low), math.Abs(y.high)))
	dressAxis(&g.X, axisLabel(p.x.name, p.x.unit), xs)
	dressAxis(&g.Y, axisLabel(p.y.name, unit), ys)
	g.X.Min, g.X.Max, g.Y.Min, g.Y.Max = xs.low, xs.high, ys.low, ys.high

	lines := plotter.NewGrid()
	lines.Vertical = draw.LineStyle{Color: palette.Grid, Width: 0.8}
	lines.Horizontal = lines.Vertical
	g.Add(lines)
	for _, s := range p.series {
		if look := looks[s.role]; look.line > 0 {
			g.Add(&plotter.Line{XYs: s.xys(), LineStyle: look.style()})
		}
	}
	order := slices.SortedStableFunc(slices.Values(p.series), func(a, b *series) int { return cmp.Compare(b.role, a.role) })
	for _, s := range order {
		if look := looks[s.role]; look.mark != noMark {
			g.Add(&plotter.Scatter{XYs: s.xys(), GlyphStyle: look.glyph()})
			g.Add(s.bars()...) // above open marks, that short intervals can be seen
		}
	}
	g.Add(labels{p.series})
	// Adding a series may have widened the axes.
	g.X.Min, g.X.Max, g.Y.Min, g.Y.Max = xs.low, xs.high, ys.low, ys.high
	return g
}

// bounds are the ranges of the values and their intervals.
func (p *panel) bounds() (x, y span) {
	x, y = span{low: math.Inf(1), high: math.Inf(-1)}, span{low: math.Inf(1), high: math.Inf(-1)}
	for _, s := range p.series {
		for _, v := range s.points {
			x.low, x.high = min(x.low, v.x.low), max(x.high, v.x.high)
			y.low, y.high = min(y.low, v.y.low), max(y.high, v.y.high)
		}
	}
	for _, a := range []struct {
		limit float64
		of    *span
	}{{p.x.limit, &x}, {p.y.limit, &y}} {
		if a.limit > 0 {
			a.of.high = min(a.of.high, a.limit)
		}
	}
	return x, y
}

// scales chooses the ranges and ticks of both axes.
func (p *panel) scales(l layout, x, y span) (xs, ys scale) {
	_, xd := scaled(p.x.unit, max(math.Abs(x.low), math.Abs(x.high)))
	_, yd := scaled(p.y.unit, max(math.Abs(y.low), math.Abs(y.high)))
	xticks := l.xticks
	if !p.x.whole { // their labels are longer
		xticks = max(4, xticks*2/3)
	}
	return newScale(p.x, x.low, x.high, xd, xticks), newScale(p.y, y.low, y.high, yd, l.yticks)
}

// axisLabel names an axis with its unit.
func axisLabel(name, unit string) string {
	if unit = clean(unit); unit != "" {
		return name + " (" + unit + ")"
	}
	return name
}

// fitLabel puts the unit of an axis on a line of its own if its name is longer than there is room.
func fitLabel(a *gonum.Axis, room vg.Length) {
	if name, unit, ok := strings.Cut(a.Label.Text, " ("); ok && a.Label.TextStyle.Width(a.Label.Text) > room {
		a.Label.Text = name + "\n(" + unit
	}
}

func dressAxis(a *gonum.Axis, label string, s scale) {
	a.Label.Text = label
	a.Label.TextStyle = keep(a.Label.TextStyle, letters(14, palette.Ink, false))
	a.Label.Padding = 4
	a.LineStyle = draw.LineStyle{Color: palette.Soft, Width: 1}
	a.Padding = 0
	a.Tick.Label = keep(a.Tick.Label, letters(13, palette.Ink, false))
	a.Tick.LineStyle = draw.LineStyle{Color: palette.Soft, Width: 1}
	a.Tick.Length = 4
	a.Tick.Marker = s
}

// keep gives a style the alignment of another, which differs between the axes.
func keep(aligned, style text.Style) text.Style {
	style.XAlign, style.YAlign, style.Rotation = aligned.XAlign, aligned.YAlign, aligned.Rotation
	return style
}

// xys are the points of a series without their intervals.
func (s *series) xys() plotter.XYs {
	all := make(plotter.XYs, len(s.points))
	for i, p := range s.points {
		all[i] = plotter.XY{X: p.x.mid, Y: p.y.mid}
	}
	return all
}

// capWidth is wider than marks, so that the ends of short intervals can be seen.
const capWidth = 12

// bars are the intervals of a series.
func (s *series) bars() []gonum.Plotter {
	style := draw.LineStyle{Color: looks[s.role].colour, Width: 1.3}
	x := &plotter.XErrorBars{LineStyle: style, CapWidth: capWidth}
	y := &plotter.YErrorBars{LineStyle: style, CapWidth: capWidth}
	for i, at := range s.xys() {
		if v := s.points[i].x; v.wide() {
			x.XYs = append(x.XYs, at)
			x.XErrors = append(x.XErrors, struct{ Low, High float64 }{v.mid - v.low, v.high - v.mid})
		}
		if v := s.points[i].y; v.wide() {
			y.XYs = append(y.XYs, at)
			y.YErrors = append(y.YErrors, struct{ Low, High float64 }{v.mid - v.low, v.high - v.mid})
		}
	}
	var all []gonum.Plotter
	if len(x.XYs) > 0 {
		all = append(all, x)
	}
	if len(y.XYs) > 0 {
		all = append(all, y)
	}
	return all
}

// legend draws the legend at the top of an area, in rows, and returns its height.
func (p *panel) legend(area draw.Canvas) vg.Length {
	const gap = 18
	style := letters(13, palette.Ink, false)
	x, y := area.Min.X, area.Max.Y
	for _, s := range p.series {
		if s.name == "" {
			continue
		}
		look := looks[s.role]
		var thumbs []gonum.Thumbnailer
		if look.line > 0 {
			thumbs = append(thumbs, &plotter.Line{LineStyle: look.style()})
		}
		if look.mark != noMark {
			thumbs = append(thumbs, &plotter.Scatter{GlyphStyle: look.glyph()})
		}
		for _, part := range strings.Split(s.name, "; ") { // a long name may take two rows
			one := gonum.NewLegend()
			one.TextStyle, one.Left, one.Top, one.ThumbnailWidth = style, true, true, 26
			if thumbs == nil {
				one.ThumbnailWidth = 0
			}
			one.Add(part, thumbs...)
			width := one.ThumbnailWidth + style.Width(" "+part)
			if x > area.Min.X && x+width > area.Max.X {
				x, y = area.Min.X, y-rowHeight
			}
			entry := area
			entry.Min.X, entry.Max.Y = x, y
			one.Draw(entry)
			x += width + gap
			thumbs = nil
		}
	}
	return area.Max.Y - y + rowHeight
}
