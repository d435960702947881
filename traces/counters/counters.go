// Package counters reads hardware counters of kernels, as Nsight Compute (ncu --csv) and nvprof
// print them, and joins them to the kernels of a recording.
//
// Both tools run a kernel alone, several times, and slow the program down, so that a timeline of
// such a run is worthless. A recording of nsys, PyTorch's profiler or gpt2scope has the times. The
// two are of different runs of one program: its kernels have the same names and grids, in the
// same order.
package counters

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"gpt2scope/internal/humanize"
	"gpt2scope/traces"
)

// Kernel is a kernel with its counters, in the order in which the file has them.
type Kernel struct {
	Name        string
	Grid, Block [3]int32 // zero if the file does not have them
	Counters    *traces.Counters
	Runs        int // of which the counters are the mean; 1 but for nvprof
}

// Set is what a file has.
type Set struct {
	Tool    string // "Nsight Compute", "nvprof"
	Kernels []Kernel

	Unknown map[string]int // metrics that are no counter of traces.AllCounters, and how often they occur
}

// Bounds of a file.
const (
	mostLines   = 10_000 // before the heading
	mostRows    = 5_000_000
	longestLine = 1 << 20 // bytes; the heading of the page "raw" has 2,000 names
)

// Read reads the CSV of ncu --csv, of its page "details" or "raw", or of nvprof --csv --metrics.
// Lines before the heading, such as those that the profiled program printed, are skipped.
func Read(r io.Reader) (*Set, error) {
	in := bufio.NewReaderSize(r, longestLine)
	for range mostLines {
		line, err := in.ReadSlice('\n')
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, fmt.Errorf("cannot be read: %w", humanize.Cause(err))
		}
		text := string(line)
		if strings.Contains(text, "Kernel") {
			heading, _ := csv.NewReader(strings.NewReader(text)).Read()
			has := func(name string) bool { return slices.Contains(heading, name) }
			rest := io.MultiReader(strings.NewReader(text), in)
			switch isNcu := has("Kernel Name") && (has("ID") || has("\ufeffID")); {
			case isNcu && has("Metric Name"):
				return read(rest, "Nsight Compute", details)
			case isNcu:
				return read(rest, "Nsight Compute", raw)
			case has("Kernel") && has("Metric Name") && has("Invocations"):
				return read(rest, "nvprof", nvprof)
			}
		}
		if err != nil {
			break
		}
	}
	return nil, errors.New("has no counters: it needs the output of ncu --csv --page details (or raw), or of nvprof --csv --metrics")
}

// table is a CSV that is being read into a set.
type table struct {
	*csv.Reader
	set    *Set
	column map[string]int
	head   []string
	row    []string
	last   string // the kernel of the row before

	active, elapsed float64 // cycles of the kernel of the row before; 0 until they are known
}

// at returns the text of a column, "" if the row or table has none.
func (t *table) at(name string) string {
	i, ok := t.column[name]
	if !ok || i >= len(t.row) {
		return ""
	}
	return t.row[i]
}

// read reads the heading and gives each row to a function.
func read(r io.Reader, tool string, each func(*table)) (*Set, error) {
	s := &Set{Tool: tool, Unknown: map[string]int{}}
	t := &table{Reader: csv.NewReader(r), set: s, column: map[string]int{}}
	t.FieldsPerRecord, t.LazyQuotes = -1, true
	var err error
	if t.head, err = t.Reader.Read(); err != nil {
		return nil, fmt.Errorf("its heading cannot be read: %w", err)
	}
	t.head[0] = strings.TrimPrefix(t.head[0], "\ufeff")
	for i, name := range t.head {
		t.column[name] = i
	}
	for range mostRows {
		if t.row, err = t.Reader.Read(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("cannot be read: %w", err)
		}
		each(t)
	}
	if len(s.Kernels) == 0 {
		return nil, errors.New("has no kernels with counters")
	}
	return s, nil
}

// kernel returns the kernel of a row, which it adds if it is not that of the row before.
func (t *table) kernel(id, name string) *Kernel {
	if len(t.set.Kernels) == 0 || id != t.last {
		t.set.Kernels = append(t.set.Kernels, Kernel{Name: name, Grid: dims(t.at("Grid Size")), Block: dims(t.at("Block Size")), Counters: traces.NewCounters(), Runs: 1})
	}
	if id != t.last {
		t.active, t.elapsed = 0, 0
	}
	t.last = id
	return &t.set.Kernels[len(t.set.Kernels)-1]
}

// note sets a counter of a kernel, or counts a metric that is none.
func (t *table) note(k *Kernel, c *traces.CounterInfo, name, value string, scale float64) {
	switch v, ok := number(value); {
	case c == nil:
		t.set.Unknown[name]++
	case ok:
		k.Counters[c.Counter] = float32(v * cmp.Or(scale, 1))
	}
}

// cycles notes the cycles in which an SM is active, in the mean, or those of the kernel: by both
// it is known which share of the time SMs are active, which ncu does not print.
func (t *table) cycles(k *Kernel, name, value string) {
	switch v, ok := number(value); {
	case !ok:
	case name == "SM Active Cycles" || name == "sm__cycles_active.avg":
		t.active = v
	case name == "Elapsed Cycles" || name == "gpc__cycles_elapsed.max":
		t.elapsed = v
	}
	if t.active > 0 && t.elapsed > 0 {
		k.Counters[traces.CounterSMActive] = float32(min(100, 100*t.active/t.elapsed))
	}
}

// find returns the counter that a name means, nil for none.
func find(is func(*traces.CounterInfo) bool) *traces.CounterInfo {
	for i := range traces.AllCounters {
		if is(&traces.AllCounters[i]) {
			return &traces.AllCounters[i]
		}
	}
	return nil
}

// details reads a row of the page "details": one metric of a kernel. The rows of a kernel stand
// together, and those that are advice have no metric.
func details(t *table) {
	k := t.kernel(t.at("Process ID")+" "+t.at("ID"), t.at("Kernel Name"))
	name := t.at("Metric Name")
	if name == "" {
		return
	}
	c := find(func(c *traces.CounterInfo) bool { return c.Details != "" && c.Details == name || c.Metric == name })
	scale := 1.0
	if c != nil {
		scale = c.Scale
	}
	t.cycles(k, name, t.at("Metric Value"))
	t.note(k, c, name, t.at("Metric Value"), scale)
}

// raw reads a row of the page "raw": all metrics of a kernel. The row below the heading has the
// units.
func raw(t *table) {
	if t.at("ID") == "" {
		return
	}
	k := t.kernel(t.at("Process ID")+" "+t.at("ID"), t.at("Kernel Name"))
	for i, name := range t.head {
		if i >= len(t.row) || !strings.Contains(name, "__") {
			continue
		}
		c := find(func(c *traces.CounterInfo) bool { return c.Metric == name })
		t.cycles(k, name, t.row[i])
		if c == nil {
			t.set.Unknown[name]++
			continue
		}
		t.note(k, c, name, t.row[i], c.Scale)
	}
}

// nvprof reads a row of nvprof: one metric over all runs of a kernel.
func nvprof(t *table) {
	name := t.at("Metric Name")
	if t.at("Kernel") == "" || name == "" {
		return
	}
	k := t.kernel(t.at("Device")+" "+t.at("Kernel"), t.at("Kernel"))
	if n, ok := number(t.at("Invocations")); ok && n >= 1 && n < mostRows {
		k.Runs = int(n)
	}
	c := find(func(c *traces.CounterInfo) bool { return slices.Contains(c.Nvprof, name) })
	value, scale := t.at("Avg"), 1.0
	if c != nil && !strings.Contains(value, "%") {
		scale = c.NvprofScale
	}
	if i, j := strings.IndexByte(value, '('), strings.IndexByte(value, ')'); i >= 0 && j > i { // "Low (2)", of 10
		value = value[i+1 : j]
	}
	t.note(k, c, name, value, scale)
}

// number reads "1,024.5" or "95.3%".
func number(s string) (float64, bool) {
	s = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(strings.ReplaceAll(s, ",", "")), "%"))
	v, err := strconv.ParseFloat(s, 64)
	return v, err == nil && !math.IsNaN(v) && !math.IsInf(v, 0)
}

// dims reads "(128, 1, 1)".
func dims(s string) (d [3]int32) {
	for i, part := range strings.Split(strings.Trim(s, "() "), ",") {
		if v, err := strconv.ParseInt(strings.TrimSpace(part), 10, 32); err == nil && i < 3 {
			d[i] = int32(v)
		}
	}
	return d
}
