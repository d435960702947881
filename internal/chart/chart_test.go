package chart

import (
	"bytes"
	"encoding/xml"
	"image/png"
	"io"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gpt2scope/internal/require"
)

// element is one of an SVG document.
type element struct {
	name, text string
	attributes map[string]string
}

// read reads an SVG document, and fails if it has what a page's policy refuses, or a number that is none.
func read(t *testing.T, svg []byte) (all []element) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		token, err := d.Token()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatalf("the picture is not well-formed: %v\n%s", err, svg)
		}
		switch e := token.(type) {
		case xml.StartElement:
			one := element{name: e.Name.Local, attributes: map[string]string{}}
			for _, a := range e.Attr {
				one.attributes[a.Name.Local] = a.Value
				if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
					t.Errorf("%s has %s=%q", one.name, a.Name.Local, a.Value)
				}
			}
			if !slices.Contains([]string{"svg", "g", "path", "text"}, one.name) || one.attributes["style"] != "" {
				t.Errorf("the picture has an element %+v", one)
			}
			all = append(all, one)
		case xml.CharData:
			all[max(0, len(all)-1)].text += string(e)
		}
	}
}

// svg draws a panel.
func svg(t *testing.T, p Panel) []element {
	t.Helper()
	text := require.Value(Picture{Title: "a title", Panels: []Panel{p}}.SVG())(t)
	return read(t, text)
}

func words(all []element) (found []string) {
	for _, e := range all {
		if e.name == "text" {
			found = append(found, strings.TrimSpace(e.text))
		}
	}
	return found
}

var firstPoint = regexp.MustCompile(`^M([-0-9.e+]+),([-0-9.e+]+)`)

// starts are where the closed shapes of a colour begin, the legend's first.
func starts(all []element, colour string) (found [][2]float64) {
	for _, e := range all {
		if e.name == "path" && e.attributes["fill"] == colour {
			m := firstPoint.FindStringSubmatch(e.attributes["d"])
			x, _ := strconv.ParseFloat(m[1], 64)
			y, _ := strconv.ParseFloat(m[2], 64)
			found = append(found, [2]float64{x, y})
		}
	}
	return found
}

// Marks are at places that are linear in the values, or in their logarithms.
func TestMarksAreWhereTheDataIs(t *testing.T) {
	x, y := []float64{1, 20, 300, 5000}, []float64{7, 3, 90, 2}
	for _, log := range []bool{false, true} {
		p := Panel{X: Axis{Name: "size", Log: log}, Y: Axis{Name: "time", Unit: "ms", Log: log}, Series: []Series{{Name: "measured", Points: Points(x, y)}}}
		all := svg(t, p)
		marks := starts(all, hex(colours[0]))
		if len(marks) != 5 {
			t.Fatalf("%d marks, expected 4 and that of the legend", len(marks))
		}
		marks = marks[1:]
		place := func(v float64) float64 {
			if log {
				return math.Log(v)
			}
			return v
		}
		for axis, values := range [][]float64{x, y} {
			for i := range values {
				want := marks[0][axis] + (place(values[i])-place(values[0]))/(place(values[3])-place(values[0]))*(marks[3][axis]-marks[0][axis])
				if math.Abs(marks[i][axis]-want) > 0.1 {
					t.Errorf("logarithmic %v: mark %d is at %v, expected %v on axis %d", log, i, marks[i], want, axis)
				}
			}
		}
		for _, text := range []string{"a title", "measured", "size", "time (ms)"} {
			if !slices.Contains(words(all), text) {
				t.Errorf("there is no text %q in %q", text, words(all))
			}
		}
	}
}

func bar(name string, v Value, text string) Row {
	return Row{Name: name, Spans: []Span{{End: v.Mid}}, Value: v, Text: text}
}

// Bars begin at 0 and are as long as their values; spans stand where they began; both are under their names.
func TestRows(t *testing.T) {
	p := Panel{X: Axis{Name: "time", Unit: "us"}, Kinds: []string{"one", "other"}, Rows: []Row{
		{Name: "first", Spans: []Span{{0, 0, 1000}, {1, 2000, 3000}}}, bar("second", Value{3000, 4000, 5000}, "4 ms"), bar("none", Exactly(math.NaN()), "-")}}
	all := svg(t, p)
	one, other := starts(all, hex(colours[0]))[1:], starts(all, hex(colours[1]))[1:] // without those of the legend
	if len(one) != 2 || len(other) != 1 || one[0][0] != one[1][0] || one[0][1] <= one[1][1] || one[0][1] != other[0][1] {
		t.Errorf("bars begin at %v and %v", one, other)
	}
	for _, text := range []string{"first", "second", "4 ms", "one", "other", "time (ms)", "0", "5"} {
		if !slices.Contains(words(all), text) {
			t.Errorf("there is no text %q in %q", text, words(all))
		}
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		axis      Axis
		low, high float64
		want      string
	}{
		{Axis{Whole: true, Zero: true}, 1, 6, "0 1 2 3 4 5 6"},
		{Axis{Whole: true, Zero: true}, 0, 0, "0 1"},
		{Axis{Zero: true}, 0.12, 0.67, "0.0 0.1 0.2 0.3 0.4 0.5 0.6"},
		{Axis{Unit: "bytes", Zero: true}, 100 << 20, 620 << 20, "0 100 200 300 400 500 600"},
		{Axis{}, 0.5, 0.5, "0.48 0.49 0.50 0.51 0.52"},
		{Axis{}, -1, 1, "-1.0 -0.5 0.0 0.5 1.0"},
		{Axis{Zero: true}, 0, 20000, "0 5,000 10,000 15,000 20,000"},
		{Axis{Log: true}, 1, 1e6, "1 10 100 1k 10k 100k 1M"},
		{Axis{Log: true}, 96, 99.9, "100"},
		{Axis{Log: true}, 2, 30, "2 5 10 20"},
	} {
		s, _ := c.axis.scale(c.low, c.high)
		var labels []string
		for _, tick := range s.Ticks(s.low, s.high) {
			if tick.Value < s.low || tick.Value > s.high {
				t.Errorf("%+v: a tick at %v is outside %v to %v", c, tick.Value, s.low, s.high)
			}
			if tick.Label != "" {
				labels = append(labels, tick.Label)
			}
		}
		if got := strings.Join(labels, " "); got != c.want {
			t.Errorf("%v to %v: ticks %s, expected %s", c.low, c.high, got, c.want)
		}
		if s.low > c.low || s.high < c.high {
			t.Errorf("%v to %v does not hold %v to %v", s.low, s.high, c.low, c.high)
		}
	}
}

// Labels cover neither marks nor each other, and stand within the picture.
func TestLabelsHaveRoom(t *testing.T) {
	s := Series{}
	for i := range 40 {
		s.Points = append(s.Points, Point{Exactly(1), Exactly(1 + float64(i%3)), "label"})
	}
	type box struct{ left, right, y float64 }
	var labels []box
	for _, e := range svg(t, Panel{X: Axis{Name: "x"}, Y: Axis{Name: "y"}, Series: []Series{s}}) {
		if strings.TrimSpace(e.text) != "label" || e.name != "text" {
			continue
		}
		x, _ := strconv.ParseFloat(e.attributes["x"], 64)
		y, _ := strconv.ParseFloat(e.attributes["y"], 64)
		labels = append(labels, box{x, x + float64(small.Width("label")), -y})
	}
	for i, a := range labels {
		for _, b := range labels[:i] {
			if a.left < b.right && b.left < a.right && math.Abs(a.y-b.y) < 12 {
				t.Errorf("labels at %v and %v overlap", a, b)
			}
		}
	}
	if len(labels) < 10 || len(labels) > 40 {
		t.Errorf("%d of 40 labels were placed", len(labels))
	}
}

// An interval that reaches much further than the points is cut, so that they can be told apart.
func TestSlowRepeats(t *testing.T) {
	p := Panel{Series: []Series{{Points: []Point{{X: Exactly(1), Y: Value{1, 1, 100}}, {X: Exactly(2), Y: Exactly(2)}}}}}
	if _, y := p.bounds(); y.High != 3 {
		t.Errorf("the axis reaches to %g, expected 1.5 times the highest point", y.High)
	}
}

// Texts of files reach neither markup nor parsers, whatever is in them.
func TestHostileText(t *testing.T) {
	const hostile = "\"><script>alert(1)</script>\x00\x1b[31m\xff\u2028]]>&amp;' style=\"fill:red\""
	p := Panel{X: Axis{Name: hostile, Unit: hostile}, Y: Axis{Name: hostile}, Series: []Series{{Name: hostile, Points: []Point{{Exactly(1), Exactly(1), hostile}}}}}
	rows := Panel{X: Axis{Name: hostile}, Kinds: []string{hostile}, Rows: []Row{bar(hostile, Exactly(1), hostile)}}
	picture := Picture{Title: hostile, Panels: []Panel{p, rows}}
	text, err := picture.SVG()
	require.NoError(t, err)
	read(t, text)
	page, err := picture.HTML()
	if err != nil || strings.Contains(string(page), "<script") || strings.ContainsAny(string(page), "\x00\x1b") {
		t.Errorf("%v: %s", err, page)
	}
}

// Pictures of arbitrary numbers are drawn without those that have no place; what has none at all is empty.
func TestAnyNumbers(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	value := func() float64 {
		switch random.IntN(8) {
		case 0:
			return 0
		case 1:
			return math.NaN()
		case 2:
			return math.Float64frombits(random.Uint64())
		case 3:
			return 1 + random.Float64()*1e-12
		}
		return random.NormFloat64() * math.Pow(10, float64(random.IntN(20)-6))
	}
	axis := func() Axis {
		return Axis{Name: "a", Unit: []string{"", "bytes", "us"}[random.IntN(3)], Log: random.IntN(2) == 0, Zero: random.IntN(2) == 0, Whole: random.IntN(3) == 0}
	}
	for range 200 {
		p := Panel{X: axis(), Y: axis()}
		for range random.IntN(4) {
			one := Series{Kind: Kind(random.IntN(5)), Group: random.IntN(20)}
			for range random.IntN(5) {
				one.Points = append(one.Points, Point{Value{value(), value(), value()}, Value{value(), value(), value()}, "label"})
			}
			p.Series = append(p.Series, one)
		}
		if random.IntN(3) == 0 {
			p = Panel{X: p.X, Rows: []Row{bar("a", Value{value(), value(), value()}, "b"), {Spans: []Span{{0, value(), value()}}}}}
		}
		if svg(t, p); t.Failed() {
			t.Fatalf("the panel was %+v", p)
		}
	}
	for _, p := range []Panel{{}, {Series: []Series{{Points: Points([]float64{math.NaN()}, []float64{1})}}}, {X: Axis{Log: true}, Rows: []Row{bar("a", Exactly(-1), "")}}} {
		if !(Picture{Panels: []Panel{p}}).Empty() {
			t.Errorf("%+v is not empty", p)
		}
	}
}

// A PNG has two pixels for one of SVG; the same data give the same bytes; a page's pictures turn dark in all their
// colours.
func TestFormats(t *testing.T) {
	p := Picture{Title: "a", Panels: []Panel{{Series: []Series{{Points: Points([]float64{1, 2}, []float64{3, 4})}}}}}
	one := require.Value(p.PNG())(t)
	if other, _ := p.PNG(); !bytes.Equal(one, other) {
		t.Error("the same data give another PNG")
	}
	if image, err := png.Decode(bytes.NewReader(one)); err != nil || image.Bounds().Dx() != 1280 {
		t.Errorf("the PNG is %v, %v", image.Bounds(), err)
	}
	page := require.Value(p.HTML())(t)
	for _, m := range regexp.MustCompile(`(fill|stroke)="#[0-9A-F]{6}"`).FindAllString(string(page), -1) {
		if !strings.Contains(string(Style()), m) {
			t.Errorf("the style has nothing for %s", m)
		}
	}
}
