package plot

import (
	"encoding/xml"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"

	"gpt2scope/layers"
)

// pick returns the points of a series, nil if there is none.
func pick(all []*figure, name string, panel int, r role) []point {
	for _, f := range all {
		if f.name != name || panel >= len(f.panels) {
			continue
		}
		for _, s := range f.panels[panel].series {
			if s.role == r {
				return s.points
			}
		}
	}
	return nil
}

// measurements are the points of a metric by depth, straight from the result.
func measurements(r *layers.Result, name string, sweep bool) []point {
	var all []point
	for _, v := range r.Variants {
		m, ok := v.Metrics[name]
		if !ok || (v.Kind == "depth") != sweep {
			continue
		}
		p := point{x: span{float64(v.Layers), float64(v.Layers), float64(v.Layers)}, y: span{m.Low, m.Median, m.High}}
		if !sweep {
			p.label = v.Label
		}
		all = append(all, p)
	}
	return all
}

func TestPlottedDataIsTheResult(t *testing.T) {
	r := full()
	all := figures(r)
	for _, c := range []struct {
		figure string
		panel  int
		metric string
		some   bool // there are predictions, and depths that verified them
		checks bool
	}{
		{"time", 0, "prefill time", true, true},
		{"time", 1, "decode time", true, false},
		{"memory", 0, "host memory", false, false},
		{"memory", 1, "device memory", true, true},
		{"quality", 0, "bits per byte", false, false},
		{"energy", 0, "energy", false, false},
	} {
		equal := func(what string, got, want []point, expected int) {
			t.Helper()
			if len(want) != expected || !slices.Equal(got, want) {
				t.Errorf("%s, %s: %s are\n%v, want %d:\n%v", c.figure, c.metric, what, got, expected, want)
			}
		}
		equal("depths", pick(all, c.figure, c.panel, measured), measurements(r, c.metric, true), 6)
		equal("lists", pick(all, c.figure, c.panel, whatIf), measurements(r, c.metric, false), len(lists))
		var predictions, checks []point
		for _, p := range r.Predictions {
			if p.Metric != c.metric {
				continue
			}
			x := exactly(float64(p.Layers))
			predictions = append(predictions, point{x: x, y: span{p.Low, p.Value, p.High}})
			if p.Measured != nil {
				checks = append(checks, point{x: x, y: exactly(*p.Measured)})
			}
		}
		count := func(some bool) int {
			if some {
				return 2
			}
			return 0
		}
		equal("predictions", pick(all, c.figure, c.panel, predicted), predictions, count(c.some))
		equal("verifications", pick(all, c.figure, c.panel, verified), checks, count(c.checks))
	}
	guess := measurements(r, "predicted memory", true)
	if got := pick(all, "memory", 1, counted); len(guess) != 6 || !slices.Equal(got, guess) {
		t.Errorf("predicted memory is %v, want %v", got, guess)
	}
	if got := pick(all, "memory", 0, counted); got != nil {
		t.Errorf("predicted memory of the device is with the host's: %v", got)
	}

	// The line goes through what the fit says, from 0 to the deepest prediction.
	for i, f := range r.Fits {
		var ends [][2]float64
		for _, s := range all[0].panels[i].series {
			if s.role != line && s.role != lineOut {
				continue
			}
			for _, p := range s.points {
				if want := f.A + f.B*p.x.mid; p.y.mid != want {
					t.Errorf("the line of %s is at %v for %v layers, want %v", f.Phase, p.y.mid, p.x.mid, want)
				}
			}
			ends = append(ends, [2]float64{s.points[0].x.mid, s.points[1].x.mid})
		}
		if want := [][2]float64{{1, 6}, {0, 1}, {6, 12}}; !slices.Equal(ends, want) {
			t.Errorf("the line of %s has the parts %v, want %v", f.Phase, ends, want)
		}
	}

	for sweep, got := range map[bool][]point{true: pick(all, "quality-time", 0, trade), false: pick(all, "quality-time", 0, whatIf)} {
		var want []point
		for _, v := range r.Variants {
			if (v.Kind == "depth") == sweep {
				d, q := v.Metrics["decode time"], v.Metrics["bits per byte"]
				want = append(want, point{span{d.Low, d.Median, d.High}, span{q.Low, q.Median, q.High}, v.Label})
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("quality against time is %v, want %v", got, want)
		}
	}
}

func TestQualityWithoutText(t *testing.T) {
	r := full()
	for i := range r.Variants {
		m := r.Variants[i].Metrics
		for _, name := range []string{"bits per byte", "perplexity", "decode time"} {
			delete(m, name)
		}
		m["agreement"] = layers.Metric{Unit: "share", Median: float64(i) / 10, Low: float64(i) / 10, High: float64(i) / 10, N: 1}
		m["KL divergence"] = layers.Metric{Unit: "nats", Median: 1 / float64(i+1), Low: 0.9 / float64(i+1), High: 1.1 / float64(i+1), N: 9}
	}
	all := figures(r)
	for i, name := range []string{"agreement", "KL divergence"} {
		if got, want := pick(all, "quality", i, measured), measurements(r, name, true); !slices.Equal(got, want) {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
		if got := pick(all, "quality-time", i, trade); len(got) != 6 || got[2].x.mid != r.Variants[2].Metrics["prefill time"].Median {
			t.Errorf("without decode, %s is against %v, want the prefill time", name, got)
		}
	}
}

// path is a path of an SVG document.
type path struct{ d, fill, stroke, width string }

// paths reads an SVG document, and fails if it has what a page may not hold.
func paths(t *testing.T, svg []byte) (all []path, texts []string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(string(svg)))
	inText := false
	for {
		token, err := d.Token()
		if err == io.EOF {
			return all, texts
		}
		if err != nil {
			t.Fatalf("the picture is not well-formed: %v", err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			inText = e.Name.Local == "text"
			if !slices.Contains([]string{"svg", "g", "path", "text"}, e.Name.Local) {
				t.Errorf("the picture has an element %s", e.Name.Local)
			}
			a := map[string]string{}
			for _, v := range e.Attr {
				a[v.Name.Local] = v.Value
			}
			for _, name := range []string{"style", "href", "onload", "id"} {
				if v, ok := a[name]; ok {
					t.Errorf("%s has %s=%q", e.Name.Local, name, v)
				}
			}
			if e.Name.Local == "path" {
				if strings.Contains(a["d"], "NaN") || strings.Contains(a["d"], "Inf") {
					t.Errorf("a path is %s", a["d"])
				}
				all = append(all, path{a["d"], a["fill"], a["stroke"], a["stroke-width"]})
			}
		case xml.CharData:
			if inText && strings.TrimSpace(string(e)) != "" {
				texts = append(texts, string(e))
			}
		case xml.EndElement:
			inText = false
		}
	}
}

var firstPoint = regexp.MustCompile(`^M([-0-9.e+]+),([-0-9.e+]+)`)

func TestMarksAreWhereTheDataIs(t *testing.T) {
	r := full()
	svg, err := asSVG(filed, "Time by depth", figures(r)[0].panels[:1])
	if err != nil {
		t.Fatal(err)
	}
	all, texts := paths(t, svg)
	var circles [][2]float64
	counts := map[string]int{}
	for _, p := range all {
		closed := strings.HasSuffix(p.d, "Z")
		switch {
		case closed && p.fill == "#0B4F96":
			m := firstPoint.FindStringSubmatch(p.d)
			x, _ := strconv.ParseFloat(m[1], 64)
			y, _ := strconv.ParseFloat(m[2], 64)
			circles = append(circles, [2]float64{x, y})
		case closed && p.stroke == "#C2550A":
			counts["predicted"]++
		case closed && p.stroke == "#1F7A4D":
			counts["lists"]++
		case p.stroke == "#1B1F24" && p.width == "1.8":
			counts["verified"]++
		case p.width == "1.3":
			counts["bars of "+p.stroke]++
		}
	}
	// One more than points, in the legend. An interval is a bar and two ends.
	want := map[string]int{"predicted": 3, "lists": len(lists) + 1, "verified": 3, "bars of #0B4F96": 18, "bars of #C2550A": 6, "bars of #1F7A4D": 3 * len(lists)}
	if !maps.Equal(counts, want) {
		t.Errorf("the picture has %v, want %v", counts, want)
	}
	if len(circles) != 7 {
		t.Fatalf("the picture has %d circles, want 6 and that of the legend", len(circles))
	}
	var values, depths [6]float64
	for i := range values {
		values[i], depths[i] = r.Variants[i].Metrics["prefill time"].Median, float64(r.Variants[i].Layers)
	}
	circles = slices.DeleteFunc(circles, func(c [2]float64) bool { return c[1] > 350 }) // that of the legend
	if len(circles) != 6 {
		t.Fatalf("the plot has %d circles, want 6", len(circles))
	}
	for i := range circles { // places are linear in values
		for axis, v := range [][6]float64{depths, values} {
			want := circles[0][axis] + (v[i]-v[0])/(v[5]-v[0])*(circles[5][axis]-circles[0][axis])
			if math.Abs(circles[i][axis]-want) > 0.1 {
				t.Errorf("mark %d is at %v, want %v on axis %d", i, circles[i], want, axis)
			}
		}
	}
	for _, text := range []string{"prefill time (ms)", "layers", "12", "drop 2", "fit: 0.3121 + 0.1416 L ms"} {
		if !slices.Contains(texts, text) {
			t.Errorf("the picture has no text %q, but %q", text, texts)
		}
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		axis      axis
		low, high float64
		divisor   float64
		want      string
	}{
		{axis{whole: true, zero: true}, 1, 6, 1, "0 1 2 3 4 5 6"},
		{axis{whole: true, zero: true}, 1, 24, 1, "0 4 8 12 16 20 24"},
		{axis{whole: true, zero: true}, 3, 3, 1, "0 1 2 3"},
		{axis{whole: true, zero: true}, 0, 0, 1, "0 1"},
		{axis{whole: true, zero: true}, 1, 200, 1, "0 50 100 150 200"},
		{axis{zero: true}, 0.12, 0.67, 1, "0.0 0.1 0.2 0.3 0.4 0.5 0.6 0.7"},
		{axis{}, 1.9, 2.7, 1, "1.8 2.0 2.2 2.4 2.6 2.8"},
		{axis{zero: true}, 100 << 20, 620 << 20, 1 << 20, "0 100 200 300 400 500 600 700"},
		{axis{}, 0.5, 0.5, 1, "0.47 0.48 0.49 0.50 0.51 0.52 0.53"},
	} {
		s := newScale(c.axis, c.low, c.high, c.divisor, 7)
		var labels []string
		for _, tick := range s.Ticks(s.low, s.high) {
			if tick.Value < s.low || tick.Value > s.high {
				t.Errorf("%v: a tick at %v is outside %v to %v", c, tick.Value, s.low, s.high)
			}
			labels = append(labels, tick.Label)
		}
		if got := strings.Join(labels, " "); got != c.want {
			t.Errorf("%v to %v: ticks %s, want %s", c.low, c.high, got, c.want)
		}
		if s.low > c.low || s.high < c.high {
			t.Errorf("%v to %v does not hold %v to %v", s.low, s.high, c.low, c.high)
		}
	}
}

func TestLabelsHaveRoom(t *testing.T) {
	inside := vg.Rectangle{Max: vg.Point{X: 600, Y: 300}}
	at := vg.Point{X: 580, Y: 150}
	taken := []vg.Rectangle{around(at, 6, 6)}
	placed := 0
	for range 200 { // labels of the same point, at the right edge
		box, ok := place(inside, at, 50, anywhere, taken)
		if !ok {
			continue
		}
		placed++
		if !contains(inside, box) {
			t.Errorf("a label at %v is outside", box)
		}
		for _, other := range taken {
			if w, h := min(box.Max.X, other.Max.X)-max(box.Min.X, other.Min.X), min(box.Max.Y, other.Max.Y)-max(box.Min.Y, other.Min.Y); w > 0 && h > 0 {
				t.Errorf("labels at %v and %v overlap", box, other)
			}
		}
		taken = append(taken, box)
	}
	if placed < 15 || placed > 60 {
		t.Errorf("%d of 200 labels were placed", placed)
	}
}

// Times that lie on no line are joined, and no line is drawn; a line of the deepest depths
// does not go below them; a line never goes below 0, nor towards a time at 0 layers that is
// known to be noise, which its legend does not name.
func TestRejectedLine(t *testing.T) {
	lines := func(change func(f *layers.Fit)) (joinedPoints int, ends [][2]float64, least float64) {
		r := full()
		change(&r.Fits[1])
		for _, s := range figures(r)[0].panels[1].series {
			switch s.role {
			case joined:
				joinedPoints = len(s.points)
			case line, lineOut:
				if f := &r.Fits[1]; f.Impossible() != "" && strings.Contains(s.name, "L ms") {
					t.Errorf("legend %q, though: %s", s.name, f.Impossible())
				}
				ends = append(ends, [2]float64{s.points[0].x.mid, s.points[1].x.mid})
				least = min(least, s.points[0].y.mid)
			}
		}
		return joinedPoints, ends, least
	}
	if n, ends, _ := lines(func(f *layers.Fit) { f.Rejected = "it bends" }); n != 6 || ends != nil {
		t.Errorf("no line: %d points are joined, lines %v", n, ends)
	}
	if n, ends, _ := lines(func(f *layers.Fit) { f.Rejected, f.From, f.Depths = "it bends", 3, []int{3, 4, 5, 6} }); n != 0 || !slices.Equal(ends, [][2]float64{{3, 6}, {6, 12}}) {
		t.Errorf("a line of the deepest: %d points are joined, lines %v", n, ends)
	}
	if n, ends, _ := lines(func(f *layers.Fit) { f.A, f.B, f.Rest = 9, -0.1, 9 }); n != 6 || ends != nil {
		t.Errorf("a layer of less than no time: %d points are joined, lines %v", n, ends)
	}
	if _, ends, _ := lines(func(f *layers.Fit) { f.A, f.Rest = -f.B/2, -f.B/2 }); !slices.Equal(ends, [][2]float64{{1, 6}, {6, 12}}) {
		t.Errorf("everything else takes less than no time: lines %v", ends)
	}
	if _, ends, least := lines(func(f *layers.Fit) { f.A = -f.B / 2 }); least < -1e-12 || len(ends) != 3 || ends[1] != [2]float64{0.5, 1} {
		t.Errorf("a negative rest: lines %v, as low as %g", ends, least)
	}
}

// The legend says what bars are, units of counts are not written, axes of times begin at 0
// and are not stretched by the bars of a few slow repeats.
func TestAxesAndLegends(t *testing.T) {
	r := full()
	for i := range r.Variants {
		m := r.Variants[i].Metrics
		slow := m["decode time"]
		slow.N, slow.High = 4, 100*slow.Median
		m["decode time"] = slow
		m["agreement"] = layers.Metric{Unit: "1", Median: 1, Low: 0.9, High: 1, N: 256}
	}
	legend := func(p *panel) string {
		var names []string
		for _, s := range p.series {
			names = append(names, s.name)
		}
		return strings.Join(names, " | ")
	}
	for _, f := range figures(r) {
		for _, p := range f.panels {
			x, y := p.bounds()
			xs, ys := p.scales(filed, x, y)
			names := legend(p)
			switch p.title {
			case "Decode time by depth":
				if !strings.HasPrefix(names, "measured; bars: least to greatest, cut at the frame | ") || ys.low != 0 || ys.high > 2 {
					t.Errorf("%s: legend %q, axis from %g to %g", p.title, names, ys.low, ys.high)
				}
			case "Prefill time by depth":
				if !strings.HasPrefix(names, "measured; bars: 95 % interval | ") || ys.low != 0 {
					t.Errorf("%s: legend %q, axis from %g", p.title, names, ys.low)
				}
			case "Agreement against decode time":
				if !strings.HasPrefix(names, "measured, by number of layers; bars: least to greatest of time; 95 % interval of agreement, cut at the frame") || xs.low != 0 || ys.high <= 1 || p.y.unit != "share of top tokens" {
					t.Errorf("%s: legend %q, axes from %g, to %g, unit %q", p.title, names, xs.low, ys.high, p.y.unit)
				}
			}
		}
	}
}

// A label is beside its mark, also if the mark has long bars.
func TestLabelsAreNear(t *testing.T) {
	inside := vg.Rectangle{Max: vg.Point{X: 600, Y: 300}}
	at := vg.Point{X: 300, Y: 150}
	bars := []vg.Rectangle{{Min: vg.Point{X: 0, Y: 148}, Max: vg.Point{X: 600, Y: 152}}, {Min: vg.Point{X: 298}, Max: vg.Point{X: 302, Y: 300}}}
	box, ok := place(inside, at, 20, near, []vg.Rectangle{around(at, 6, 6)}, bars)
	if !ok || box.Min.X > at.X+15 || box.Max.X < at.X-15 || box.Min.Y > at.Y+25 || box.Max.Y < at.Y-25 {
		t.Errorf("the label of %v is at %v", at, box)
	}
}

// TestAxisNamesHaveRoom: a name that is longer than its axis has its unit on another line.
func TestAxisNamesHaveRoom(t *testing.T) {
	const name = "agreement with full depth (share of top tokens)"
	for room, want := range map[vg.Length]string{190: "agreement with full depth\n(share of top tokens)", 400: name} {
		g := gonum.New()
		dressAxis(&g.Y, name, scale{})
		fitLabel(&g.Y, room)
		if g.Y.Label.Text != want || g.Y.Label.TextStyle.Width(g.Y.Label.Text) > room {
			t.Errorf("in %g points the name is %q, %g wide", room, g.Y.Label.Text, g.Y.Label.TextStyle.Width(g.Y.Label.Text))
		}
	}
}
