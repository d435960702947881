package plot

import (
	"cmp"
	"slices"

	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"gpt2scope/internal/palette"
)

// labels draws the labels of points so that they cover neither marks nor each other: at the
// first place that is free, beside the mark or, with a line to it, above or below. One
// that fits nowhere is omitted; the page's tables have all.
type labels struct{ series []*series }

// maxLabels bounds the labels of a panel, which has no room for more.
const maxLabels = 150

// Plot implements [gonum.Plotter].
func (l labels) Plot(c draw.Canvas, p *gonum.Plot) {
	toX, toY := p.Transforms(&c)
	style := letters(12, palette.Ink, false)
	taken, bars := l.obstacles(toX, toY)
	var all []point
	for _, s := range l.series {
		for _, v := range s.points {
			if v.label != "" && len(all) < maxLabels {
				all = append(all, v)
			}
		}
	}
	// From above, so that few of the lines to labels cross.
	slices.SortStableFunc(all, func(a, b point) int { return cmp.Compare(b.y.mid, a.y.mid) })
	for _, v := range all {
		at := vg.Point{X: toX(v.x.mid), Y: toY(v.y.mid)}
		width := style.Width(v.label)
		box, ok := place(c.Rectangle, at, width, near, taken, bars)
		if !ok { // rather over a bar than far away
			if box, ok = place(c.Rectangle, at, width, near, taken); ok {
				c.FillPolygon(palette.Paper, []vg.Point{box.Min, {X: box.Max.X, Y: box.Min.Y}, box.Max, {X: box.Min.X, Y: box.Max.Y}})
			}
		}
		if !ok {
			if box, ok = place(c.Rectangle, at, width, anywhere, taken, bars); !ok {
				continue
			}
		}
		taken = append(taken, box)
		middle := (box.Min.Y + box.Max.Y) / 2
		if d := middle - at.Y; d > 18 || d < -18 || box.Min.X > at.X+20 || box.Max.X < at.X-20 {
			end := vg.Point{X: min(max(at.X, box.Min.X-2), box.Max.X+2), Y: middle}
			if end.X == at.X { // above or below
				end.Y += max(-1, min(1, at.Y-middle)) * labelHeight / 2
			}
			c.StrokeLines(draw.LineStyle{Color: palette.Soft, Width: 0.6}, []vg.Point{at, end})
		}
		c.FillText(style, vg.Point{X: box.Min.X, Y: box.Min.Y + 3}, v.label)
	}
}

// obstacles are the places of marks and lines, and those of intervals; lines are squares
// along them.
func (l labels) obstacles(toX, toY func(float64) vg.Length) (taken, bars []vg.Rectangle) {
	for _, s := range l.series {
		look := looks[s.role]
		for i, v := range s.points {
			at := vg.Point{X: toX(v.x.mid), Y: toY(v.y.mid)}
			if look.mark != noMark {
				taken = append(taken, around(at, 6, 6))
			}
			if v.y.wide() {
				low, high := toY(v.y.low), toY(v.y.high)
				bars = append(bars, vg.Rectangle{Min: vg.Point{X: at.X - 2, Y: low}, Max: vg.Point{X: at.X + 2, Y: high}},
					around(vg.Point{X: at.X, Y: low}, capWidth/2, 2), around(vg.Point{X: at.X, Y: high}, capWidth/2, 2))
			}
			if v.x.wide() {
				low, high := toX(v.x.low), toX(v.x.high)
				bars = append(bars, vg.Rectangle{Min: vg.Point{X: low, Y: at.Y - 2}, Max: vg.Point{X: high, Y: at.Y + 2}},
					around(vg.Point{X: low, Y: at.Y}, 2, capWidth/2), around(vg.Point{X: high, Y: at.Y}, 2, capWidth/2))
			}
			if look.line == 0 || i == 0 {
				continue
			}
			from := vg.Point{X: toX(s.points[i-1].x.mid), Y: toY(s.points[i-1].y.mid)}
			const parts = 64
			for k := range parts + 1 {
				f := vg.Length(k) / parts
				taken = append(taken, around(vg.Point{X: from.X + (at.X-from.X)*f, Y: from.Y + (at.Y-from.Y)*f}, 1.5, 1.5))
			}
		}
	}
	return taken, bars
}

// How far from its point a label may be, as a number of places that are tried.
const near, anywhere = 8, 57

// labelHeight is the height of a label with the room about it.
const labelHeight = 14

// around is a rectangle about a point.
func around(at vg.Point, w, h vg.Length) vg.Rectangle {
	return vg.Rectangle{Min: vg.Point{X: at.X - w, Y: at.Y - h}, Max: vg.Point{X: at.X + w, Y: at.Y + h}}
}

// place finds a free place for a label of a width at a point: as near as there is, so that
// it is not taken for that of another.
func place(inside vg.Rectangle, at vg.Point, w vg.Length, shifts int, taken ...[]vg.Rectangle) (vg.Rectangle, bool) {
	const gap, far, step, h = 9, 40, 5, labelHeight
	for shift := range shifts { // 0, up, down, further up, ...
		dy := vg.Length((shift+1)/2) * step
		if shift%2 == 0 {
			dy = -dy
		}
		places := []vg.Length{at.X + gap, at.X - gap - w, at.X - w/2}
		if shift > near { // not at the height of the mark
			places = append(places, at.X+far, at.X-far-w)
		}
		for _, x := range places {
			box := vg.Rectangle{Min: vg.Point{X: x, Y: at.Y + dy - h/2}, Max: vg.Point{X: x + w, Y: at.Y + dy + h/2}}
			if contains(inside, box) && !slices.ContainsFunc(taken, func(t []vg.Rectangle) bool { return !free(box, t) }) {
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
