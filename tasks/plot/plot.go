// Package plot draws what 'infer tasks bench' measured: of each task the times on CPU and GPU
// over the size, with the crossover, and how the time on a GPU divides into copies and kernels.
// [Write] makes pictures, SVG and PNG, and one page with all of them.
package plot

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"html/template"
	"image/color"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"

	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"gpt2scope/internal/humanize"
	"gpt2scope/internal/palette"
	"gpt2scope/internal/webpage"
	"gpt2scope/tasks"
	"gpt2scope/weights"
)

// Sizes of a picture: letters stay readable where a phone shows it at its own width.
const (
	width  = 5.2 * vg.Inch
	height = 3.9 * vg.Inch
	letter = vg.Length(11)
)

// lines are the curves that a picture of times has, in the order of the legend.
var lines = []struct {
	name         string
	kind, memory string
	time         string
	color        color.RGBA
	dashes       []vg.Length
	mark         draw.GlyphDrawer
}{
	{"CPU", tasks.CPU, tasks.MemoryHost, tasks.TimeWall, palette.Blue, nil, draw.CircleGlyph{}},
	{"GPU, kernel alone", tasks.GPU, tasks.MemoryResident, tasks.TimeKernel, palette.Green, []vg.Length{2, 3}, draw.TriangleGlyph{}},
	{"GPU, data there", tasks.GPU, tasks.MemoryResident, tasks.TimeWall, palette.Green, nil, draw.SquareGlyph{}},
	{"GPU, copies from pinned memory", tasks.GPU, tasks.MemoryPinned, tasks.TimeWall, palette.Orange, []vg.Length{6, 3}, draw.PyramidGlyph{}},
	{"GPU, copies from pageable memory", tasks.GPU, tasks.MemoryPageable, tasks.TimeWall, palette.Purple, nil, draw.CrossGlyph{}},
}

// picture is a plot with its name.
type picture struct {
	File  string // without its ending
	Title string
	Says  string // in words, for the page and for who does not see the picture
	Drawn template.HTML
	plot  *gonum.Plot
}

// Write writes the pictures of samples and tasks.html into a directory that exists, and returns
// how many pictures there are. The same samples give the same bytes.
func Write(ctx context.Context, dir string, samples []tasks.Sample, seed uint64) (int, error) {
	var all []*picture
	charts := tasks.Charts(samples, seed)
	machines := map[string]bool{}
	for i := range charts {
		machines[charts[i].Machine] = true
	}
	for i := range charts {
		c := &charts[i]
		gpus := c.GPUs()
		if len(gpus) == 0 {
			gpus = []string{""}
		}
		for _, gpu := range gpus {
			name := c.Task + "-" + c.DType
			if len(machines) > 1 {
				name += "-" + file(c.Machine)
			}
			if len(gpus) > 1 {
				name += "-" + file(gpu)
			}
			all = append(all, times(name, c, gpu))
			if p := shares(name+"-parts", c, gpu); p != nil {
				all = append(all, p)
			}
		}
	}
	for _, p := range all {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		if err := p.write(ctx, dir); err != nil {
			return 0, err
		}
	}
	data, err := page(all, charts)
	if err == nil {
		err = write(ctx, filepath.Join(dir, "tasks.html"), data)
	}
	return len(all), err
}

// file makes a part of a file's name of a text.
func file(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' {
			return r
		}
		return '_'
	}, text)
}

func write(ctx context.Context, path string, data []byte) error {
	return weights.WriteFile(ctx, path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// write writes a picture as SVG and PNG, and keeps the SVG for the page.
func (p *picture) write(ctx context.Context, dir string) error {
	vector := vgsvg.New(width, height)
	p.draw(draw.New(vector))
	var svg bytes.Buffer
	if _, err := vector.WriteTo(&svg); err != nil {
		return err
	}
	if i := bytes.Index(svg.Bytes(), []byte("<svg")); i >= 0 {
		p.Drawn = template.HTML(svg.Bytes()[i:]) // our own drawing
	}
	pixels := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(160))
	p.draw(draw.New(pixels))
	var image bytes.Buffer
	if _, err := (vgimg.PngCanvas{Canvas: pixels}).WriteTo(&image); err != nil {
		return err
	}
	if err := write(ctx, filepath.Join(dir, p.File+".svg"), svg.Bytes()); err != nil {
		return err
	}
	return write(ctx, filepath.Join(dir, p.File+".png"), image.Bytes())
}

// draw draws a picture with a margin, into which the last label of an axis reaches.
func (p *picture) draw(c draw.Canvas) { p.plot.Draw(draw.Crop(c, 4, -16, 4, -4)) }

// axes makes a plot with our letters and grid.
func axes(title, x, y string) *gonum.Plot {
	p := gonum.New()
	p.Title.Text = title
	p.X.Label.Text, p.Y.Label.Text = x, y
	for _, f := range []*font.Font{&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font, &p.X.Tick.Label.Font, &p.Y.Tick.Label.Font, &p.Legend.TextStyle.Font} {
		f.Size, f.Variant = letter, "Sans"
	}
	p.Title.TextStyle.Font.Size = letter + 2
	p.X.Tick.Label.Font.Size, p.Y.Tick.Label.Font.Size, p.Legend.TextStyle.Font.Size = letter-1, letter-1, letter-1
	p.Title.Padding = 6
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.Padding, p.Legend.XOffs, p.Legend.YOffs = 2.5, 4, -2
	lines := plotter.NewGrid()
	lines.Vertical = draw.LineStyle{Color: palette.Grid, Width: 0.8}
	lines.Horizontal = lines.Vertical
	p.Add(lines)
	return p
}

// heading names what a chart is of.
func heading(c *tasks.Chart) string {
	return fmt.Sprintf("%s, %s", c.Task, c.DType)
}

// axis names the size that varies along a line of shapes, and those that do not: "m = n = k", or
// "b, with past=128, l=1".
func axis(line string) string {
	var vary, others []string
	for part := range strings.SplitSeq(line, ",") {
		if name, ok := strings.CutSuffix(part, "=*"); ok {
			vary = append(vary, name)
		} else {
			others = append(others, part)
		}
	}
	text := strings.Join(vary, " = ")
	if len(others) > 0 {
		text += ", with " + strings.Join(others, ", ")
	}
	return text
}

// times draws the times over the size, both in logarithms, and the crossovers.
func times(name string, c *tasks.Chart, gpu string) *picture {
	p := axes(heading(c), axis(c.Line), "time, us")
	p.X.Scale, p.Y.Scale = gonum.LogScale{}, gonum.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = decades{most: 4}, decades{most: 10}
	low, high := math.Inf(1), 0.0
	var says []string
	for _, l := range lines {
		device := gpu
		if l.kind == tasks.CPU {
			device = tasks.CPU
		}
		k := c.Find(device, l.memory, l.time)
		if k == nil {
			continue
		}
		points := make(plotter.XYs, len(k.Sizes))
		for i := range k.Sizes {
			points[i] = plotter.XY{X: float64(k.Sizes[i]), Y: k.Us[i]}
			low, high = min(low, k.Us[i]), max(high, k.Us[i])
		}
		line := &plotter.Line{XYs: points, LineStyle: draw.LineStyle{Color: l.color, Width: 1.4, Dashes: l.dashes}}
		marks := &plotter.Scatter{XYs: points, GlyphStyle: draw.GlyphStyle{Color: l.color, Radius: 2.2, Shape: l.mark}}
		p.Add(line, marks)
		p.Legend.Add(l.name, line, marks)
	}
	for _, x := range c.Crossovers {
		if x.Device != gpu {
			continue
		}
		where := map[string]string{tasks.MemoryResident: "with its data there", tasks.MemoryPinned: "with copies from pinned memory", tasks.MemoryPageable: "with copies from pageable memory"}[x.Memory]
		except, but := "", ""
		if x.Exceptions > 0 {
			but = fmt.Sprintf(" but %d of %d", x.Exceptions, x.Sizes)
			except = fmt.Sprintf(", but at %d of %d sizes it is the other way round", x.Exceptions, x.Sizes)
		}
		switch {
		case x.Size != nil:
			says = append(says, fmt.Sprintf("The GPU %s is faster from %s on (95 %% interval %s to %s)%s.", where, number(*x.Size), number(*x.Low), number(*x.High), except))
			colour := colourOf(x.Memory)
			area, err := plotter.NewPolygon(plotter.XYs{{X: *x.Low, Y: low}, {X: *x.High * 1.0001, Y: low}, {X: *x.High * 1.0001, Y: high}, {X: *x.Low, Y: high}})
			if err == nil {
				area.Color, area.LineStyle.Width = color.NRGBA{colour.R, colour.G, colour.B, 0x30}, 0
				p.Add(area)
			}
			p.Add(&plotter.Line{XYs: plotter.XYs{{X: *x.Size, Y: low}, {X: *x.Size, Y: high}}, LineStyle: draw.LineStyle{Color: colour, Width: 1, Dashes: []vg.Length{1.5, 2}}})
		case x.Faster == tasks.CPU:
			says = append(says, fmt.Sprintf("The CPU is faster than the GPU %s at all%s sizes.", where, but))
		default:
			says = append(says, fmt.Sprintf("The GPU %s is faster at all%s sizes.", where, but))
		}
	}
	p.Y.Max = high * math.Pow(high/low, 0.5)                                                            // room for the legend
	p.X.Min, p.X.Max = p.X.Min/math.Pow(p.X.Max/p.X.Min, 0.02), p.X.Max*math.Pow(p.X.Max/p.X.Min, 0.02) // and for marks at the ends
	p.Y.Min /= math.Pow(high/low, 0.03)
	return &picture{File: name, Title: heading(c), Says: strings.Join(says, " "), plot: p}
}

// colourOf is that of the times with the GPU's data in a kind of memory.
func colourOf(memory string) color.RGBA {
	for _, l := range lines {
		if l.kind == tasks.GPU && l.memory == memory && l.time == tasks.TimeWall {
			return l.color
		}
	}
	return palette.Ink
}

// parts are what the time on a GPU divides into, in the colours of the ranges.
var parts = []struct {
	name  string
	color color.RGBA
	of    func(tasks.Share) float64
}{
	{"copy to the GPU", palette.Yellow, func(s tasks.Share) float64 { return s.H2D }},
	{"kernels", palette.Green, func(s tasks.Share) float64 { return s.Kernel }},
	{"copy back", palette.Cyan, func(s tasks.Share) float64 { return s.D2H }},
	{"else: launches, waiting", palette.Pale, func(s tasks.Share) float64 { return s.Rest }},
}

// shares draws how the time divides at each size, from pageable memory and, to its right, from
// pinned; nil if it was not measured.
func shares(name string, c *tasks.Chart, gpu string) *picture {
	p := axes(heading(c)+": left pageable, right pinned", axis(c.Line), "percent of the time")
	drawn := false
	var labels []string
	var bars [2][]*plotter.BarChart
	for side, memory := range []string{tasks.MemoryPageable, tasks.MemoryPinned} {
		sizes, all := c.Shares(gpu, memory)
		if step := (len(sizes) + 8) / 9; step > 1 { // nine are as many as fit with their names
			var some []int
			var of []tasks.Share
			for i := 0; i < len(sizes); i += step {
				some, of = append(some, sizes[i]), append(of, all[i])
			}
			sizes, all = some, of
		}
		if len(sizes) == 0 {
			continue
		}
		drawn, labels = true, nil
		for _, size := range sizes {
			labels = append(labels, short(size))
		}
		for i, part := range parts {
			values := make(plotter.Values, len(all))
			for j, s := range all {
				values[j] = max(0, part.of(s))
			}
			chart, err := plotter.NewBarChart(values, 10)
			if err != nil {
				return nil
			}
			chart.Color, chart.LineStyle.Width = part.color, 0
			chart.Offset = vg.Length(11*side) - 5.5
			if i > 0 {
				chart.StackOn(bars[side][i-1])
			}
			bars[side] = append(bars[side], chart)
			p.Add(chart)
			if side == 0 {
				p.Legend.Add(part.name, chart)
			}
		}
	}
	if !drawn {
		return nil
	}
	p.NominalX(labels...)
	p.Y.Min, p.Y.Max = 0, 160
	p.Y.Tick.Marker = gonum.ConstantTicks{{Value: 0, Label: "0"}, {Value: 25, Label: "25"}, {Value: 50, Label: "50"}, {Value: 75, Label: "75"}, {Value: 100, Label: "100"}}
	return &picture{File: name, Title: heading(c) + ", parts of the time", Says: "How the time of a run on the GPU divides into copies and kernels, with pageable and pinned memory.", plot: p}
}

// decades are ticks at powers of ten. Only every second one has a name if more than most would have
// one, so that names do not touch.
type decades struct{ most int }

func (d decades) Ticks(low, high float64) []gonum.Tick {
	var ticks []gonum.Tick
	every := 1
	if math.Floor(math.Log10(high))-math.Ceil(math.Log10(low)) >= float64(d.most) {
		every = 2
	}
	first := math.Ceil(math.Log10(low))
	for e := math.Floor(math.Log10(low)); e <= math.Ceil(math.Log10(high)); e++ {
		for n := 1.0; n < 10; n++ {
			v := n * math.Pow(10, e)
			if v < low || v > high {
				continue
			}
			tick := gonum.Tick{Value: v}
			if n == 1 && int(e-first)%every == 0 || high/low < 150 && (n == 2 || n == 5) {
				tick.Label = number(v)
			}
			ticks = append(ticks, tick)
		}
	}
	return ticks
}

// number writes a number with two digits and the thousands apart.
func number(v float64) string {
	if v < 100 {
		return fmt.Sprintf("%.2g", v)
	}
	unit := math.Pow(10, math.Floor(math.Log10(v))-1)
	return humanize.Thousands(int64(math.Round(v/unit) * unit))
}

// short writes a size in few letters: "64K", "16M".
func short(n int) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%.3gM", float64(n)/(1<<20))
	case n >= 10_000:
		return fmt.Sprintf("%.3gK", float64(n)/(1<<10))
	}
	return fmt.Sprint(n)
}

//go:embed page.html
var pageText string

//go:embed page.css
var style string

var pageTemplate = template.Must(webpage.New(pageText, template.FuncMap{"number": func(v *float64) string {
	if v == nil {
		return ""
	}
	return number(*v)
}}))

// page is one file with all pictures and the crossovers as a table.
func page(all []*picture, charts []tasks.Chart) ([]byte, error) {
	var crossovers []tasks.Crossover
	var machines []string
	for _, c := range charts {
		crossovers = append(crossovers, c.Crossovers...)
		if !slices.Contains(machines, c.Machine) {
			machines = append(machines, c.Machine)
		}
	}
	var b bytes.Buffer
	err := pageTemplate.Execute(&b, map[string]any{"Head": webpage.Head{Title: "Where should this run?", Style: template.CSS(style), Inline: true}, "Pictures": all, "Crossovers": crossovers, "Machines": strings.Join(machines, ", ")})
	return b.Bytes(), err
}
