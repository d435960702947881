package chart

import (
	"image/color"
	"math"
	"slices"

	gonum "gonum.org/v1/plot"
	gonumfont "gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/recorder"
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
	mostTicks    = 7  // that have a label, about
	margin       = 12
	titleHeight  = 34
	legendHeight = 19 // of a line
	scaleHeight  = 44 // of the numbers and the name below rows
	numbersWidth = 70 // left of axes, which are aligned unless numbers are longer
)

// letters is a style of text; sizes are pixels.
func letters(size vg.Length) text.Style {
	f := gonumfont.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
	return text.Style{Color: ink, Font: f, Handler: text.Plain{Fonts: gonumfont.DefaultCache}}
}

var small = letters(12)

// height is what the picture needs: it is drawn once where nothing keeps it.
func (p *Picture) height() vg.Length {
	return p.draw(draw.NewCanvas(&recorder.Canvas{}, pictureWidth, 0))
}

// draw draws panels from the top of a canvas, and returns their height.
func (p *Picture) draw(c draw.Canvas) vg.Length {
	top := c.Max.Y
	fill(c, paper, c.Rectangle)
	if p.Title != "" {
		c.FillText(letters(16), vg.Point{X: margin, Y: c.Max.Y - 22}, p.Title)
		c.Max.Y -= titleHeight
	}
	for i := range p.Panels {
		one, area := &p.Panels[i], draw.Crop(c, margin, -margin, 0, 0)
		area.Max.Y = one.legend(area)
		area.Min.Y = area.Max.Y - axesHeight
		if len(one.Rows) > 0 {
			area.Min.Y = area.Max.Y - rowHeight*vg.Length(len(one.Rows)) - scaleHeight
		}
		one.axes(area)
		c.Max.Y = area.Min.Y - margin
	}
	return top - c.Max.Y
}

func box(x0, y0, x1, y1 vg.Length) vg.Rectangle {
	return vg.Rectangle{Min: vg.Point{X: x0, Y: y0}, Max: vg.Point{X: x1, Y: y1}}
}

func fill(c draw.Canvas, colour color.Color, r vg.Rectangle) {
	c.FillPolygon(colour, []vg.Point{r.Min, {X: r.Max.X, Y: r.Min.Y}, r.Max, {X: r.Min.X, Y: r.Max.Y}})
}

// room is the width of a text in a viewer that lacks the font, and has a wider one.
func room(text string) vg.Length { return 1.2 * small.Width(text) }

// legend explains series and kinds of spans at the top of a canvas, and returns where it ends.
func (p *Panel) legend(c draw.Canvas) vg.Length {
	at := vg.Point{X: c.Min.X, Y: c.Max.Y}
	add := func(name string, sample func(from, to vg.Point)) {
		if name == "" {
			return
		}
		end := at.X + 29 + room(name)
		if at.X > c.Min.X && end > c.Max.X {
			at, end = vg.Point{X: c.Min.X, Y: at.Y - legendHeight}, end-at.X+c.Min.X
		}
		sample(vg.Point{X: at.X, Y: at.Y - 9}, vg.Point{X: at.X + 24, Y: at.Y - 9})
		c.FillText(small, vg.Point{X: at.X + 29, Y: at.Y - 13}, name)
		at.X = end + 16
	}
	for _, s := range p.Series {
		add(s.Name, func(from, to vg.Point) {
			c.StrokeLines(s.line(), []vg.Point{from, to})
			s.mark(c, vg.Point{X: from.X + 12, Y: from.Y})
		})
	}
	for i, kind := range p.Kinds {
		add(kind, func(from, to vg.Point) { fill(c, colourOf(i), box(from.X, from.Y-5, to.X, to.Y+5)) })
	}
	if at.X > c.Min.X {
		at.Y -= legendHeight
	}
	return at.Y - 6
}

// bounds are the ranges of values and intervals.
func (p *Panel) bounds() (x, y Value) {
	var xs, ys []Value
	for _, s := range p.Series {
		for _, v := range s.Points {
			xs, ys = append(xs, v.X), append(ys, v.Y)
		}
	}
	for _, r := range p.Rows {
		xs = append(xs, p.X.interval(r.Value))
		for _, s := range r.Spans {
			xs = append(xs, Exactly(s.Start), Exactly(s.End))
		}
	}
	return p.X.bounds(xs), p.Y.bounds(ys)
}

// bounds is the range of values. Where intervals reach much further than points, as those of a few slow repeats do,
// they are cut: the points could not be told apart.
func (a Axis) bounds(values []Value) Value {
	all := Value{math.Inf(1), math.Inf(-1), math.Inf(-1)}
	for _, v := range values {
		if a.holds(v.Mid) {
			all = Value{min(all.Low, v.Low), max(all.Mid, v.Mid), max(all.High, v.High)}
		}
	}
	if all.Mid > 0 && all.High > 3*all.Mid {
		all.High = 1.5 * all.Mid
	}
	return all
}

// axes draws a panel. Names of rows and texts stand beside the axes.
func (p *Panel) axes(c draw.Canvas) {
	g := gonum.New()
	lines := &plotter.Grid{Vertical: draw.LineStyle{Color: grid, Width: 0.8}}
	g.Add(lines, p)
	x, y := p.bounds()
	dress(&g.X, p.X, x)
	if len(p.Rows) == 0 {
		lines.Horizontal = lines.Vertical
		dress(&g.Y, p.Y, y)
		c.Min.X += max(0, numbersWidth-g.DataCanvas(c).Min.X)
	} else {
		g.HideY()
		names, texts := vg.Length(0), vg.Length(0)
		for _, r := range p.Rows {
			names, texts = max(names, room(r.Name)+6), max(texts, room(r.Text))
		}
		c = draw.Crop(c, names, -texts, 0, 0)
	}
	g.Draw(c)
}

func dress(a *gonum.Axis, axis Axis, of Value) {
	s, name := axis.scale(of.Low, of.High)
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
		colour := colourOf(b.Group)
		faint := color.NRGBA{colour.R, colour.G, colour.B, 0x40}
		fill(c, faint, box(max(toX(b.Low), c.Min.X), c.Min.Y, min(toX(b.High)+0.5, c.Max.X), c.Max.Y))
		line := []vg.Point{{X: toX(b.Mid), Y: c.Min.Y}, {X: toX(b.Mid), Y: c.Max.Y}}
		c.StrokeLines(draw.LineStyle{Color: colour, Width: 1, Dashes: []vg.Length{1.5, 2}}, c.ClipLinesXY(line)...)
	}
	for _, s := range p.Series {
		var points []vg.Point
		for _, v := range s.Points {
			points = append(points, vg.Point{X: toX(v.X.Mid), Y: toY(v.Y.Mid)})
		}
		c.StrokeLines(s.line(), c.ClipLinesXY(points)...)
	}
	var taken []vg.Rectangle
	for _, s := range slices.Backward(p.Series) {
		for _, v := range s.Points {
			x, y := toX(v.X.Mid), toY(v.Y.Mid)
			left, right, low, high := toX(v.X.Low), toX(v.X.High), toY(v.Y.Low), toY(v.Y.High)
			s.mark(c, vg.Point{X: x, Y: y})
			whisker(c, colourOf(s.Group), vg.Point{X: left, Y: y}, vg.Point{X: right, Y: y})
			whisker(c, colourOf(s.Group), vg.Point{X: x, Y: low}, vg.Point{X: x, Y: high})
			taken = append(taken, box(left-4, y-4, right+4, y+4), box(x-4, low-4, x+4, high+4))
		}
	}
	p.label(c, toX, toY, taken)
	p.rows(c, func(v float64) vg.Length { return toX(min(max(v, g.X.Min), g.X.Max)) })
}

// looks are the lines and marks of kinds; a width or radius of 0 is none.
var looks = map[Kind]struct {
	width, radius vg.Length
	dashes        []vg.Length
}{
	Measured: {radius: 3.4}, Joined: {width: 1.5, radius: 3.4}, Predicted: {radius: 4.4},
	Line: {width: 1.5}, Dashed: {width: 1.5, dashes: []vg.Length{5, 4}},
}

func (s *Series) line() draw.LineStyle {
	return draw.LineStyle{Color: colourOf(s.Group), Width: looks[s.Kind].width, Dashes: looks[s.Kind].dashes}
}

// mark draws that of a point; that of a prediction has paper inside.
func (s *Series) mark(c draw.Canvas, at vg.Point) {
	style := draw.GlyphStyle{Color: colourOf(s.Group), Radius: looks[s.Kind].radius, Shape: marks[s.Group%len(marks)]}
	if style.Radius == 0 {
		return
	}
	c.DrawGlyph(style, at)
	if s.Kind == Predicted {
		style.Color, style.Radius = paper, style.Radius-1.6
		c.DrawGlyph(style, at)
	}
}

// whisker draws an interval, level or upright, with caps at the ends that are not cut.
func whisker(c draw.Canvas, colour color.Color, from, to vg.Point) {
	length := to.X - from.X + to.Y - from.Y
	if length <= 0 {
		return
	}
	half := vg.Point{X: to.Y - from.Y, Y: to.X - from.X}.Scale(5 / length) // across the line
	for _, line := range [][]vg.Point{{from, to}, {from.Sub(half), from.Add(half)}, {to.Sub(half), to.Add(half)}} {
		c.StrokeLines(draw.LineStyle{Color: colour, Width: 1.2}, c.ClipLinesXY(line)...)
	}
}

// rows draws bars and spans, from the top down.
func (p *Panel) rows(c draw.Canvas, at func(float64) vg.Length) {
	for i, row := range p.Rows {
		step := (c.Max.Y - c.Min.Y) / vg.Length(len(p.Rows))
		top, bottom := c.Max.Y-step*vg.Length(i)-3, c.Max.Y-step*vg.Length(i+1)+3
		end, middle := c.Min.X, (top+bottom)/2
		c.FillText(small, vg.Point{X: c.Min.X - 6 - room(row.Name), Y: middle - 4}, row.Name)
		for _, s := range row.Spans {
			if !p.X.holds(s.End) || !p.X.holds(s.Start) && s.Start != 0 { // a bar's 0 has no logarithm
				continue
			}
			from, to := at(min(s.Start, s.End)), at(max(s.Start, s.End))
			end = max(end, to)
			fill(c, colourOf(s.Kind), box(from, bottom, max(to-0.5, from+0.5), top))
		}
		if v := p.X.interval(row.Value); v.Low < v.High {
			end = max(end, at(v.High))
			whisker(c, ink, vg.Point{X: at(v.Low), Y: middle}, vg.Point{X: at(v.High), Y: middle})
		}
		c.FillText(small, vg.Point{X: end + 5, Y: middle - 4}, row.Text)
	}
}

// label draws labels beside marks, or above or below, where nothing is taken. One that has no room is omitted.
func (p *Panel) label(c draw.Canvas, toX, toY func(float64) vg.Length, taken []vg.Rectangle) {
	free := func(b vg.Rectangle) bool {
		return c.Contains(b.Min) && c.Contains(b.Max) && !slices.ContainsFunc(taken, func(t vg.Rectangle) bool {
			return b.Min.X < t.Max.X && t.Min.X < b.Max.X && b.Min.Y < t.Max.Y && t.Min.Y < b.Max.Y
		})
	}
	for _, s := range p.Series {
		for _, v := range s.Points {
			w := small.Width(v.Label)
			for i := range 3 * 15 { // right, left, centred; at its height, above, below, further above, ...
				x, y := toX(v.X.Mid), toY(v.Y.Mid)+vg.Length((i/3+1)/2*(i/3%2*2-1))*5
				x = []vg.Length{x + 8, x - 8 - w, x - w/2}[i%3]
				if b := box(x-3, y-8, x+w+3, y+8); w > 0 && free(b) {
					taken = append(taken, b)
					c.FillText(small, vg.Point{X: x, Y: y - 4}, v.Label)
					break
				}
			}
		}
	}
}
