package plot

import (
	"image/color"
	"math"

	"golang.org/x/image/font"
	gonumfont "gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"gpt2scope/internal/palette"
)

// shape is that of a mark.
type shape int

const (
	noMark shape = iota
	circle
	square
	triangle
	diamond
	cross
)

// look is how a series is drawn.
type look struct {
	colour color.RGBA
	mark   shape
	open   bool // the mark is an outline
	line   vg.Length
	dashes []vg.Length
}

var looks = map[role]look{
	measured:  {colour: palette.Blue, mark: circle},
	joined:    {colour: palette.Blue, line: 1.2, dashes: []vg.Length{1.5, 3}},
	trade:     {colour: palette.Blue, mark: circle, line: 1.2, dashes: []vg.Length{1.5, 3}},
	counted:   {colour: palette.Purple, mark: triangle, open: true, line: 1.4, dashes: []vg.Length{7, 3, 1.5, 3}},
	line:      {colour: palette.Blue, line: 1.6},
	lineOut:   {colour: palette.Blue, line: 1.4, dashes: []vg.Length{5, 4}},
	predicted: {colour: palette.Orange, mark: square, open: true},
	verified:  {colour: palette.Ink, mark: cross},
	whatIf:    {colour: palette.Green, mark: diamond, open: true},
}

// style is the line along the points.
func (l look) style() draw.LineStyle {
	return draw.LineStyle{Color: l.colour, Width: l.line, Dashes: l.dashes}
}

// glyph is the mark at a point.
func (l look) glyph() draw.GlyphStyle {
	return draw.GlyphStyle{Color: l.colour, Radius: 4.6, Shape: l}
}

// DrawGlyph implements [draw.GlyphDrawer]: a closed path for a mark, of which an open
// one has a second for its outline; a cross is two lines.
func (l look) DrawGlyph(c *draw.Canvas, _ draw.GlyphStyle, at vg.Point) {
	var p vg.Path
	corners := func(radius float64, degrees ...float64) {
		for i, d := range degrees {
			sin, cos := math.Sincos(d * math.Pi / 180)
			to := vg.Point{X: at.X + vg.Length(radius*cos), Y: at.Y + vg.Length(radius*sin)}
			if i == 0 {
				p.Move(to)
			} else {
				p.Line(to)
			}
		}
		p.Close()
	}
	switch l.mark {
	case circle:
		const r = 3.8
		p.Move(vg.Point{X: at.X + r, Y: at.Y})
		p.Arc(at, r, 0, 2*math.Pi)
		p.Close()
	case square:
		corners(6, 45, 135, 225, 315)
	case triangle:
		corners(5.8, 90, 210, 330)
	case diamond:
		corners(7, 0, 90, 180, 270)
	case cross:
		const r = 4.4
		c.SetLineStyle(draw.LineStyle{Color: l.colour, Width: 1.8})
		p.Move(vg.Point{X: at.X - r, Y: at.Y - r})
		p.Line(vg.Point{X: at.X + r, Y: at.Y + r})
		p.Move(vg.Point{X: at.X - r, Y: at.Y + r})
		p.Line(vg.Point{X: at.X + r, Y: at.Y - r})
		c.Stroke(p)
		return
	default:
		return
	}
	if !l.open {
		c.SetColor(l.colour)
		c.Fill(p)
		return
	}
	c.SetColor(palette.Paper)
	c.Fill(p)
	c.SetLineStyle(draw.LineStyle{Color: l.colour, Width: 1.6})
	c.Stroke(p)
}

// letters is a style of text; sizes are pixels of a picture that is 800 wide.
func letters(size vg.Length, colour color.Color, bold bool) text.Style {
	f := gonumfont.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
	if bold {
		f.Weight = font.WeightBold
	}
	return text.Style{Color: colour, Font: f, Handler: text.Plain{Fonts: gonumfont.DefaultCache}}
}
