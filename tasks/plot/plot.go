// Package plot draws what 'infer tasks bench' measured: of each task the times on CPU and GPU over the size, with the
// crossover, and how the time on a GPU divides into copies and kernels.
package plot

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gpt2scope/internal/album"
	"gpt2scope/internal/chart"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/lazyregexp"
	"gpt2scope/predict"
	"gpt2scope/tasks"
)

// lines are the curves that a picture of times has, in the order of the legend.
var lines = []tasks.Column{
	{Name: "CPU", Device: tasks.CPU, Memory: predict.Host, Time: tasks.TimeWall},
	{Name: "GPU, kernel alone", Device: tasks.GPU, Memory: predict.Resident, Time: tasks.TimeKernel},
	{Name: "GPU, data there", Device: tasks.GPU, Memory: predict.Resident, Time: tasks.TimeWall},
	{Name: "GPU, copies from pinned memory", Device: tasks.GPU, Memory: predict.Pinned, Time: tasks.TimeWall},
	{Name: "GPU, copies from pageable memory", Device: tasks.GPU, Memory: predict.Pageable, Time: tasks.TimeWall},
	{Name: "CPU, a plain loop", Device: tasks.CPU, Memory: predict.Host, Time: tasks.TimePlain},
}

// Write writes the pictures of charts and tasks.html, a page with all of them and a text, into a directory that exists,
// and returns how many pictures there are. The same samples give the same bytes.
func Write(ctx context.Context, dir string, charts []tasks.Chart, text string) (int, error) {
	machines, stored := map[string]bool{}, false
	for _, c := range charts {
		machines[c.Machine] = true
		stored = stored || slices.Contains(c.GPUs, tasks.StoredGPU)
	}
	a := album.Album{File: "tasks.html", Title: "Where should this run?", Text: text,
		Hint: "Measured on " + strings.Join(slices.Sorted(maps.Keys(machines)), ", ") + ". Medians of the tuned ways, warm. Both " +
			"axes of times are logarithmic. A dotted line is a crossover, in the colour of the GPU's times, and the band its " +
			"95 % interval: the one size that, as a threshold, chooses best. Where times cross several times, it is wrong at " +
			"some sizes."}
	if stored {
		a.Hint += " No GPU was measured here: dashed curves are stored ones of an NVIDIA H200 in another machine, and each " +
			"crossover is as it would be with that GPU."
	}
	for i := range charts {
		c := &charts[i]
		gpus := c.GPUs
		if len(gpus) == 0 {
			gpus = []string{""}
		}
		for _, gpu := range gpus {
			name := c.Task + "-" + c.DType
			if len(machines) > 1 {
				name += "-" + noName().ReplaceAllString(c.Machine, "_")
			}
			if len(gpus) > 1 {
				name += "-" + noName().ReplaceAllString(gpu, "_")
			}
			a.Pictures = append(a.Pictures, times(name, c, gpu), parts(name+"-parts", c, gpu))
		}
	}
	return a.Write(ctx, dir)
}

// noName is what a part of a file's name does not have.
var noName = lazyregexp.New("[^a-zA-Z0-9.-]")

// axis names the size that varies along a line of shapes, and those that do not: "m = n = k", or "b, with past=128,
// l=1".
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
func times(name string, c *tasks.Chart, gpu string) album.Picture {
	panel := chart.Panel{X: chart.Axis{Name: axis(c.Line), Log: true}, Y: chart.Axis{Name: "time (us)", Log: true}}
	groups := map[predict.Memory]int{} // of the GPU's times, by the memory of its data
	for i, l := range lines {
		device := gpu
		if l.Device == tasks.CPU {
			device = tasks.CPU
		} else if l.Time == tasks.TimeWall {
			groups[l.Memory] = i
		}
		if sizes, us := c.Find(device, l.Memory, l.Time); sizes != nil {
			x := make([]float64, len(sizes))
			for i, size := range sizes {
				x[i] = float64(size)
			}
			s := chart.Series{Name: l.Name, Kind: chart.Joined, Group: i, Points: chart.Points(x, us)}
			if device == tasks.StoredGPU {
				s.Name, s.Kind = strings.Replace(l.Name, "GPU", "stored H200", 1), chart.Dashed
			}
			panel.Series = append(panel.Series, s)
		}
	}
	for _, x := range c.Crossovers {
		if x.Device == gpu && x.Size != nil {
			v := chart.Value{Low: *x.Low, Mid: *x.Size, High: *x.High}
			panel.Bands = append(panel.Bands, chart.Band{Value: v, Group: groups[x.Memory]})
		}
	}
	title := c.Task + ", " + c.DType
	return album.Picture{File: name, Picture: chart.Picture{Title: title, Panels: []chart.Panel{panel}}}
}

// parts draws how the time at each size divides, from pageable memory and from pinned; nothing if it was not measured.
func parts(name string, c *tasks.Chart, gpu string) album.Picture {
	panel := chart.Panel{X: chart.Axis{Name: "share of the time (%)", Zero: true},
		Kinds: []string{"copy to the GPU", "kernels", "copy back", "else: launches, waiting"}}
	rows := map[int][]chart.Row{} // by size
	for _, memory := range []predict.Memory{predict.Pageable, predict.Pinned} {
		sizes, all := c.Shares(gpu, memory)
		step := (len(sizes) + 8) / 9 // nine sizes at most, so that the picture is no longer than a screen
		for i := 0; i < len(sizes); i += step {
			r, end := chart.Row{Name: humanize.Thousands(int64(sizes[i])) + " " + string(memory)}, 0.0
			for kind, share := range all[i] {
				r.Spans = append(r.Spans, chart.Span{Kind: kind, Start: end, End: end + share})
				end += share
			}
			rows[sizes[i]] = append(rows[sizes[i]], r)
		}
	}
	for _, size := range slices.Sorted(maps.Keys(rows)) {
		panel.Rows = append(panel.Rows, rows[size]...)
	}
	title := fmt.Sprintf("%s, %s: parts of the time by %s", c.Task, c.DType, axis(c.Line))
	if gpu == tasks.StoredGPU {
		title += ", on a stored H200"
	}
	return album.Picture{File: name, Picture: chart.Picture{Title: title, Panels: []chart.Panel{panel}}}
}
