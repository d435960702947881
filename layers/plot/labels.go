package plot

import (
	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// labels draws the labels of points where they cover neither marks nor each other: the
// first place that is free, beside the mark or, with a line to it, above or below. One
// that fits nowhere is left out; the page's tables have all.
type labels struct{ series []*series }

// Plot implements [gonum.Plotter].
func (l labels) Plot(c draw.Canvas, p *gonum.Plot) {
	toX, toY := p.Transforms(&c)
	style := letters(12, ink, false)
	var taken []vg.Rectangle
	for _, s := range l.series {
		if looks[s.role].mark == noMark {
			continue
		}
		for _, v := range s.points {
			taken = append(taken, around(vg.Point{X: toX(v.x.mid), Y: toY(v.y.mid)}, 5, 5))
		}
	}
	for _, s := range l.series {
		for _, v := range s.points {
			if v.label == "" {
				continue
			}
			at := vg.Point{X: toX(v.x.mid), Y: toY(v.y.mid)}
			box, ok := place(c.Rectangle, at, style.Width(v.label), 14, taken)
			if !ok {
				continue
			}
			taken = append(taken, box)
			middle := (box.Min.Y + box.Max.Y) / 2
			if d := middle - at.Y; d > 20 || d < -20 {
				end := vg.Point{X: box.Min.X - 2, Y: middle}
				if box.Max.X < at.X {
					end.X = box.Max.X + 2
				}
				c.StrokeLines(draw.LineStyle{Color: soft, Width: 0.6}, []vg.Point{at, end})
			}
			text := style
			text.YAlign = textCentre
			c.FillText(text, vg.Point{X: box.Min.X, Y: middle}, v.label)
		}
	}
}

const textCentre = text.YCenter

// around is a rectangle about a point.
func around(at vg.Point, w, h vg.Length) vg.Rectangle {
	return vg.Rectangle{Min: vg.Point{X: at.X - w, Y: at.Y - h}, Max: vg.Point{X: at.X + w, Y: at.Y + h}}
}

// place finds a free place for a label of a size at a point.
func place(inside vg.Rectangle, at vg.Point, w, h vg.Length, taken []vg.Rectangle) (vg.Rectangle, bool) {
	const gap = 8
	for shift := range 21 { // 0, up, down, further up, ...
		dy := vg.Length((shift+1)/2) * h
		if shift%2 == 0 {
			dy = -dy
		}
		distance := vg.Length(gap)
		if shift > 2 {
			distance += 8 // room for the line
		}
		for _, x := range []vg.Length{at.X + distance, at.X - distance - w} {
			box := vg.Rectangle{Min: vg.Point{X: x, Y: at.Y + dy - h/2}, Max: vg.Point{X: x + w, Y: at.Y + dy + h/2}}
			if contains(inside, box) && free(box, taken) {
				return box, true
			}
		}
	}
	return vg.Rectangle{}, false
}

func contains(outer, inner vg.Rectangle) bool {
	return inner.Min.X >= outer.Min.X && inner.Max.X <= outer.Max.X && inner.Min.Y >= outer.Min.Y && inner.Max.Y <= outer.Max.Y
}

func free(box vg.Rectangle, taken []vg.Rectangle) bool {
	for _, t := range taken {
		if box.Min.X < t.Max.X && t.Min.X < box.Max.X && box.Min.Y < t.Max.Y && t.Min.Y < box.Max.Y {
			return false
		}
	}
	return true
}
