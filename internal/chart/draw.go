package chart

import (
	"cmp"
	"image/color"
	"math"
	"slices"

	gonum "gonum.org/v1/plot"
	gonumfont "gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// The colours. Those of series and spans differ in lightness too.
var (
	paper, ink, soft, grid = rgb(0xffffff), rgb(0x1b1f24), rgb(0x57606a), rgb(0xe4e8ec)

	colours = []color.RGBA{rgb(0x0b4f96), rgb(0xc2550a), rgb(0x1f7a4d), rgb(0x7a3e9d), rgb(0xa8324a), rgb(0x3b8ea5),
		rgb(0x8a6d00), rgb(0x56606a), rgb(0xe58fb8), rgb(0x86b84c), rgb(0x8fb8de), rgb(0xd9a441)}
	marks = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}}
)

func rgb(v uint32) color.RGBA { return color.RGBA{uint8(v >> 16), uint8(v >> 8), uint8(v), 0xff} }

func colourOf(group int) color.RGBA { return colours[group%len(colours)] }

// Lengths are pixels.
const (
	pictureWidth = 640
	axesHeight   = 300
	rowHeight    = 24 // of a bar
	xticks       = 9
	yticks       = 7
	margin       = 12
	titleHeight  = 34
	legendHeight = 19 // of a line
	scaleHeight  = 44 // of the numbers and the name below a panel
)

// letters is a style of text; sizes are pixels.
func letters(size vg.Length) text.Style {
	f := gonumfont.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
	return text.Style{Color: ink, Font: f, Handler: text.Plain{Fonts: gonumfont.DefaultCache}}
}

var small = letters(12)

// size of a picture.
func (p *Picture) size() (w, h vg.Length) {
	if p.Title != "" {
		h = titleHeight
	}
	for i := range p.Panels {
		h += p.Panels[i].height()
	}
	return pictureWidth, h
}

// height is that of the legend and the axes.
func (p *Panel) height() vg.Length {
	legend := p.legend(draw.Canvas{Rectangle: vg.Rectangle{Max: vg.Point{X: pictureWidth - 2*margin}}})
	if len(p.Rows) > 0 {
		return legend + rowHeight*vg.Length(len(p.Rows)) + scaleHeight + margin
	}
	return legend + axesHeight + margin
}

// draw draws panels below each other, their vertical axes at the same place.
func (p *Picture) draw(c draw.Canvas) {
	fill(c, paper, c.Rectangle)
	if p.Title != "" {
		c.FillText(letters(16), vg.Point{X: margin, Y: c.Max.Y - 22}, p.Title)
		c.Max.Y -= titleHeight
	}
	plots, areas, left := make([]*gonum.Plot, len(p.Panels)), make([]draw.Canvas, len(p.Panels)), vg.Length(0)
	for i := range p.Panels {
		one, area := &p.Panels[i], draw.Crop(c, margin, -margin, 0, 0)
		area.Max.Y -= one.legend(area)
		c.Max.Y -= one.height()
		area.Min.Y = c.Max.Y + margin
		plots[i] = one.axes(&area)
		areas[i], left = area, max(left, plots[i].DataCanvas(area).Min.X)
	}
	for i, g := range plots {
		areas[i].Min.X += left - g.DataCanvas(areas[i]).Min.X
		g.Draw(areas[i])
	}
}

func box(x0, y0, x1, y1 vg.Length) vg.Rectangle {
	return vg.Rectangle{Min: vg.Point{X: x0, Y: y0}, Max: vg.Point{X: x1, Y: y1}}
}

func fill(c draw.Canvas, colour color.Color, r vg.Rectangle) {
	c.FillPolygon(colour, []vg.Point{r.Min, {X: r.Max.X, Y: r.Min.Y}, r.Max, {X: r.Min.X, Y: r.Max.Y}})
}

// legend explains series and kinds of spans at the top of an area, in as many lines as they need, and returns its
// height. Without a canvas nothing is drawn.
func (p *Panel) legend(area draw.Canvas) vg.Length {
	at := vg.Point{X: area.Min.X, Y: area.Max.Y}
	add := func(name string, sample func(left vg.Point)) {
		width := 29 + small.Width(name)
		if name == "" {
			return
		}
		if at.X+width > area.Max.X && at.X > area.Min.X {
			at = vg.Point{X: area.Min.X, Y: at.Y - legendHeight}
		}
		if area.Canvas != nil {
			sample(vg.Point{X: at.X, Y: at.Y - 9})
			area.FillText(small, vg.Point{X: at.X + 29, Y: at.Y - 13}, name)
		}
		at.X += width + 16
	}
	for _, s := range p.Series {
		add(s.Name, func(left vg.Point) {
			area.StrokeLines(s.line(), []vg.Point{left, {X: left.X + 24, Y: left.Y}})
			s.mark(area, vg.Point{X: left.X + 12, Y: left.Y})
		})
	}
	for i, kind := range p.Kinds {
		add(kind, func(left vg.Point) {
			fill(area, colourOf(i), box(left.X, left.Y-5, left.X+24, left.Y+5))
		})
	}
	if at.X == area.Min.X { // nothing stands in the last line
		at.Y += legendHeight
	}
	return area.Max.Y - at.Y + legendHeight + 6
}

// bounds are the ranges of values and intervals. Where intervals reach much further than points, as those of a few slow
// repeats do, they are cut: the points could not be told apart.
func (p *Panel) bounds() (x, y Value) {
	x = Value{math.Inf(1), math.Inf(-1), math.Inf(-1)}
	y = x
	with := func(to *Value, a Axis, v Value) {
		if a.holds(v.Mid) {
			*to = Value{min(to.Low, v.Low), max(to.Mid, v.Mid), max(to.High, v.High)}
		}
	}
	for _, s := range p.Series {
		for _, v := range s.Points {
			with(&x, p.X, v.X)
			with(&y, p.Y, v.Y)
		}
	}
	for _, r := range p.Rows {
		with(&x, p.X, p.X.interval(r.Value))
		for _, s := range r.Spans {
			with(&x, p.X, Exactly(s.Start))
			with(&x, p.X, Exactly(s.End))
		}
	}
	for _, v := range []*Value{&x, &y} {
		if v.Mid > 0 && v.High > 3*v.Mid {
			v.High = 1.5 * v.Mid
		}
	}
	return x, y
}

// axes makes the plot of a panel. Rows narrow the area by the room of their names and texts.
func (p *Panel) axes(area *draw.Canvas) *gonum.Plot {
	g := gonum.New()
	g.BackgroundColor = nil
	lines := plotter.NewGrid()
	lines.Vertical = draw.LineStyle{Color: grid, Width: 0.8}
	lines.Horizontal = lines.Vertical
	g.Add(lines, p)
	x, y := p.bounds()
	dress(&g.X, p.X, x, xticks)
	if len(p.Rows) == 0 {
		dress(&g.Y, p.Y, y, yticks)
		return g
	}
	names, texts := vg.Length(0), vg.Length(0)
	for _, r := range p.Rows {
		names, texts = max(names, small.Width(r.Name)+6), max(texts, small.Width(r.Text))
	}
	area.Min.X += names
	area.Max.X -= texts
	lines.Horizontal.Width = 0
	g.HideY()
	return g
}

func dress(a *gonum.Axis, axis Axis, of Value, ticks int) {
	s, name := axis.scale(of.Low, of.High, ticks)
	a.Min, a.Max, a.Label.Text, a.Label.Padding, a.Padding = s.low, s.high, name, 3, 0
	a.LineStyle = draw.LineStyle{Color: soft, Width: 1}
	a.Tick.LineStyle, a.Tick.Length, a.Tick.Marker = a.LineStyle, 4, s
	for _, t := range []*text.Style{&a.Label.TextStyle, &a.Tick.Label} {
		t.Color, t.Font, t.Handler = small.Color, small.Font, small.Handler
	}
	if axis.Log {
		a.Scale = gonum.LogScale{}
	}
}

// Plot implements [gonum.Plotter]: it draws all that a panel has.
func (p *Panel) Plot(c draw.Canvas, g *gonum.Plot) {
	toX, toY := g.Transforms(&c)
	for _, b := range p.Bands {
		fill(c, faint(colourOf(b.Group)), box(max(toX(b.Low), c.Min.X), c.Min.Y, min(toX(b.High)+0.5, c.Max.X), c.Max.Y))
		line := []vg.Point{{X: toX(b.Mid), Y: c.Min.Y}, {X: toX(b.Mid), Y: c.Max.Y}}
		c.StrokeLines(draw.LineStyle{Color: colourOf(b.Group), Width: 1, Dashes: []vg.Length{1.5, 2}}, c.ClipLinesXY(line)...)
	}
	for _, s := range p.Series {
		var points []vg.Point
		for _, v := range s.Points {
			points = append(points, vg.Point{X: toX(v.X.Mid), Y: toY(v.Y.Mid)})
		}
		c.StrokeLines(s.line(), c.ClipLinesXY(points)...)
	}
	last := func(a, b Series) int { return cmp.Compare(b.Kind, a.Kind) } // marks of early kinds cover the others
	for _, s := range slices.SortedStableFunc(slices.Values(p.Series), last) {
		for _, v := range s.Points {
			x, y := toX(v.X.Mid), toY(v.Y.Mid)
			s.mark(c, vg.Point{X: x, Y: y})
			whisker(c, s.colour(), vg.Point{X: toX(v.X.Low), Y: y}, vg.Point{X: toX(v.X.High), Y: y})
			whisker(c, s.colour(), vg.Point{X: x, Y: toY(v.Y.Low)}, vg.Point{X: x, Y: toY(v.Y.High)})
		}
	}
	p.label(c, toX, toY)
	p.rows(c, func(v float64) vg.Length { return toX(min(max(v, g.X.Min), g.X.Max)) })
}

// looks are the lines and marks of kinds; a width or radius of 0 is none.
var looks = map[Kind]struct {
	width, radius vg.Length
	dashes        []vg.Length
}{
	Measured: {radius: 3.4}, Joined: {width: 1.5, radius: 3.4}, Verified: {radius: 2.2}, Predicted: {radius: 4.4},
	Line: {width: 1.5}, Dashed: {width: 1.5, dashes: []vg.Length{5, 4}},
}

func (s *Series) colour() color.RGBA {
	if s.Kind == Verified {
		return ink
	}
	return colourOf(s.Group)
}

func (s *Series) line() draw.LineStyle {
	return draw.LineStyle{Color: s.colour(), Width: looks[s.Kind].width, Dashes: looks[s.Kind].dashes}
}

// mark draws that of a point; that of a prediction has paper inside.
func (s *Series) mark(c draw.Canvas, at vg.Point) {
	style := draw.GlyphStyle{Color: s.colour(), Radius: looks[s.Kind].radius, Shape: marks[s.Group%len(marks)]}
	if style.Radius == 0 {
		return
	}
	if len(s.Points) > 100 { // larger marks would hide the line
		style.Radius = 1
	}
	c.DrawGlyph(style, at)
	if s.Kind == Predicted {
		style.Color, style.Radius = paper, style.Radius-1.6
		c.DrawGlyph(style, at)
	}
}

// whisker draws an interval, level or upright, with caps at the ends that are not cut.
func whisker(c draw.Canvas, colour color.Color, from, to vg.Point) {
	half := vg.Point{X: 5}
	switch {
	case from == to:
		return
	case from.Y == to.Y:
		half = vg.Point{Y: 5}
	}
	for _, line := range [][]vg.Point{{from, to}, {from.Sub(half), from.Add(half)}, {to.Sub(half), to.Add(half)}} {
		c.StrokeLines(draw.LineStyle{Color: colour, Width: 1.2}, c.ClipLinesXY(line)...)
	}
}

func faint(c color.RGBA) color.Color { return color.NRGBA{c.R, c.G, c.B, 0x40} }

// rows draws bars and spans, from the top down.
func (p *Panel) rows(c draw.Canvas, at func(float64) vg.Length) {
	for i, row := range p.Rows {
		step := (c.Max.Y - c.Min.Y) / vg.Length(len(p.Rows))
		top, bottom := c.Max.Y-step*vg.Length(i)-3, c.Max.Y-step*vg.Length(i+1)+3
		end, middle := c.Min.X, (top+bottom)/2
		c.FillText(small, vg.Point{X: c.Min.X - 6 - small.Width(row.Name), Y: middle - 4}, row.Name)
		for _, s := range row.Spans {
			if !p.X.holds(s.End) || !p.X.holds(s.Start) && s.Start != 0 { // a bar's 0 has no logarithm
				continue
			}
			from, to := at(min(s.Start, s.End)), at(max(s.Start, s.End))
			end = max(end, to)
			if to-from > 3 { // neighbours of a kind can be told apart
				to -= 0.5
			}
			colour := color.Color(colourOf(s.Kind))
			if s.Faint {
				colour = faint(colourOf(s.Kind))
			}
			fill(c, colour, box(from, bottom, max(to, from+0.5), top))
		}
		if v := p.X.interval(row.Value); v.Low < v.High {
			end = max(end, at(v.High))
			whisker(c, ink, vg.Point{X: at(v.Low), Y: middle}, vg.Point{X: at(v.High), Y: middle})
		}
		c.FillText(small, vg.Point{X: end + 5, Y: middle - 4}, row.Text)
	}
}

// label draws the labels of points where they cover neither marks and intervals nor each other: beside the mark,
// or above or below. One that has no room is omitted.
func (p *Panel) label(c draw.Canvas, toX, toY func(float64) vg.Length) {
	var taken []vg.Rectangle
	for _, s := range p.Series {
		for _, v := range s.Points {
			x, y := toX(v.X.Mid), toY(v.Y.Mid)
			taken = append(taken, box(toX(v.X.Low)-4, y-4, toX(v.X.High)+4, y+4), box(x-4, toY(v.Y.Low)-4, x+4, toY(v.Y.High)+4))
		}
	}
	free := func(b vg.Rectangle) bool {
		inside := b.Min.X >= c.Min.X && b.Max.X <= c.Max.X && b.Min.Y >= c.Min.Y && b.Max.Y <= c.Max.Y
		return inside && !slices.ContainsFunc(taken, func(t vg.Rectangle) bool {
			return b.Min.X < t.Max.X && t.Min.X < b.Max.X && b.Min.Y < t.Max.Y && t.Min.Y < b.Max.Y
		})
	}
	for _, s := range p.Series {
		for _, v := range s.Points {
			w := small.Width(v.Label)
			for i := range 3 * 15 { // right, left, centred; at its height, above, below, further above, ...
				x, y := toX(v.X.Mid), toY(v.Y.Mid)+vg.Length((i/3+1)/2*(i/3%2*2-1))*5
				x = []vg.Length{toX(v.X.High) + 8, toX(v.X.Low) - 8 - w, x - w/2}[i%3]
				if b := box(x, y-6.5, x+w, y+6.5); w > 0 && free(b) {
					taken = append(taken, b)
					c.FillText(small, vg.Point{X: x, Y: y - 4}, v.Label)
					break
				}
			}
		}
	}
}
