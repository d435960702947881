// Package counters reads hardware counters of kernels, as Nsight Compute (ncu --csv) and nvprof
// print them, and joins them to the kernels of a recording.
//
// Both tools run a kernel alone, several times, and slow the program down, so that a timeline of such a run is
// worthless. A recording of nsys, PyTorch's profiler or gpt2scope has the times. The two are of different runs of one
// program: its kernels have the same names and grids, in the same order.
package counters

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
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

// Read reads the CSV of ncu --csv, of its page "details" or "raw" or summed by kernel
// (--print-summary per-kernel), or of nvprof --csv --metrics, with --print-gpu-trace too. Lines before
// the heading, such as those that the profiled program printed, are skipped.
func Read(r io.Reader) (*Set, error) {
	in := bufio.NewReaderSize(r, longestLine)
	for range mostLines {
		line, err := in.ReadSlice('\n')
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, fmt.Errorf("cannot be read: %w", humanize.Cause(err))
		}
		text := string(line)
		if strings.Contains(text, "Kernel") {
			tool, each := format(text)
			if each != nil {
				sample, _ := in.Peek(longestLine)
				return read(io.MultiReader(strings.NewReader(text), in), tool, decimalComma.Match(sample), each)
			}
		}
		if err != nil {
			break
		}
	}
	return nil, errors.New("has no counters: it needs the output of ncu --csv --page details (or raw), or of nvprof " +
		"--csv --metrics")
}

// format tells by the heading who wrote a table and what reads its rows, nil if it is none with counters.
func format(heading string) (tool string, each func(*table)) {
	r := csv.NewReader(strings.NewReader(heading))
	r.TrimLeadingSpace, r.LazyQuotes = true, true
	names, _ := r.Read()
	if len(names) > 0 {
		names[0] = strings.TrimPrefix(names[0], "\ufeff")
	}
	has := func(list ...string) bool {
		return !slices.ContainsFunc(list, func(name string) bool { return !slices.Contains(names, name) })
	}
	switch {
	case has("Kernel Name", "ID", "Metric Name"), has("Kernel Name", "Invocations", "Metric Name"):
		return "Nsight Compute", details
	case has("Kernel Name", "ID"):
		return "Nsight Compute", raw
	case has("Kernel", "Invocations", "Metric Name"):
		return "nvprof", nvprof
	case has("Kernel", "Device", "Stream"):
		return "nvprof", nvprofTrace
	}
	return "", nil
}

// table is a CSV that is being read into a set.
type table struct {
	*csv.Reader
	set    *Set
	column map[string]int
	head   []string
	row    []string
	comma  bool // numbers have a decimal comma

	kernels map[string]*counted
	order   []*counted
}

// counted is a kernel that is being read.
type counted struct {
	Kernel
	active, elapsed float64 // cycles; 0 until they are known
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
func read(r io.Reader, tool string, comma bool, each func(*table)) (*Set, error) {
	s := &Set{Tool: tool, Unknown: map[string]int{}}
	t := &table{Reader: csv.NewReader(r), set: s, column: map[string]int{}, kernels: map[string]*counted{},
		comma: comma}
	t.FieldsPerRecord, t.LazyQuotes, t.TrimLeadingSpace = -1, true, true
	var err error
	if t.head, err = t.Reader.Read(); err != nil {
		return nil, fmt.Errorf("its heading cannot be read: %w", err)
	}
	t.head[0] = strings.TrimPrefix(t.head[0], "\ufeff")
	for i, name := range t.head {
		t.column[name] = i
	}
	for n := 0; ; n++ {
		if t.row, err = t.Reader.Read(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("cannot be read: %w", err)
		}
		if n == mostRows {
			return nil, fmt.Errorf("has more than %d rows: count fewer kernels, or fewer metrics", mostRows)
		}
		// A file may have the output of several processes, with messages and headings between.
		if !strings.HasPrefix(t.row[0], "==") && !slices.Equal(t.row, t.head) {
			each(t)
		}
	}
	for _, k := range t.order {
		s.Kernels = append(s.Kernels, k.Kernel)
	}
	if len(s.Kernels) == 0 {
		return nil, errors.New("has no kernels with counters")
	}
	return s, nil
}

// kernel returns the kernel of a row, which it adds if no row had it.
func (t *table) kernel(id, name string) *counted {
	k := t.kernels[id]
	if k == nil {
		k = &counted{Kernel: Kernel{Name: name, Grid: dims(t.at("Grid Size")), Block: dims(t.at("Block Size")),
			Counters: traces.NewCounters(), Runs: 1}}
		if n, ok := t.number(t.at("Invocations")); ok && n >= 1 && n < mostRows {
			k.Runs = int(n)
		}
		t.kernels[id] = k
		t.order = append(t.order, k)
	}
	return k
}

// note sets a counter of a kernel, or counts a metric that is none. names are what the tool
// calls a counter: the first of them that the file has counts.
func (t *table) note(k *counted, names func(*traces.CounterInfo) []string, name, value string,
	scale func(*traces.CounterInfo) float64) {
	for i := range traces.AllCounters {
		c := &traces.AllCounters[i]
		place := slices.Index(names(c), name)
		if place < 0 {
			continue
		}
		v, ok := t.number(value)
		if _, has := k.Counters.Get(c.Counter); ok && (place == 0 || !has) {
			k.Counters[c.Counter] = float32(v * cmp.Or(scale(c), 1))
		}
		return
	}
	t.set.Unknown[name]++
}

func ofNcu(c *traces.CounterInfo) []string    { return c.Ncu }
func ofNvprof(c *traces.CounterInfo) []string { return c.Nvprof }

// ncu notes a metric of ncu. From the cycles in which an SM is active, in the mean, and those of
// the kernel it is known which share of the time SMs are active, which ncu does not print.
func (t *table) ncu(k *counted, name, unit, value string) {
	if v, ok := t.number(value); ok && (unit == "cycle" || unit == "") {
		switch name {
		case "SM Active Cycles", "sm__cycles_active.avg":
			k.active = v
		case "Elapsed Cycles", "gpc__cycles_elapsed.max":
			k.elapsed = v
		}
		if k.active > 0 && k.elapsed > 0 {
			k.Counters[traces.CounterSMActive] = float32(min(100, 100*k.active/k.elapsed))
		}
	}
	t.note(k, ofNcu, name, value, func(c *traces.CounterInfo) float64 {
		if strings.HasSuffix(name, ".pct") {
			return 1
		}
		return c.Scale
	})
}

// details reads a row of the page "details": one metric of a kernel, or of all runs of a kernel.
// Rows that are advice have no metric.
func details(t *table) {
	id := t.at("Process ID") + " " + t.at("ID")
	if _, ok := t.column["ID"]; !ok {
		id += t.at("Kernel Name") + t.at("Grid Size") + t.at("Block Size")
	}
	if name := t.at("Metric Name"); name != "" {
		t.ncu(t.kernel(id, t.at("Kernel Name")), name, t.at("Metric Unit"),
			cmp.Or(t.at("Metric Value"), t.at("Average")))
	}
}

// raw reads a row of the page "raw": all metrics of a kernel. The row below the heading has the units.
func raw(t *table) {
	if t.at("ID") == "" {
		return
	}
	k := t.kernel(t.at("Process ID")+" "+t.at("ID"), t.at("Kernel Name"))
	for i, name := range t.head {
		if i < len(t.row) && strings.Contains(name, "__") {
			t.ncu(k, name, "", t.row[i])
		}
	}
}

// nvprof reads a row of nvprof: one metric over all runs of a kernel.
func nvprof(t *table) {
	if name := t.at("Metric Name"); t.at("Kernel") != "" && name != "" {
		t.nvprof(t.kernel(t.at("Device")+" "+t.at("Kernel"), t.at("Kernel")), name, t.at("Avg"))
	}
}

// nvprofTrace reads a row of nvprof --print-gpu-trace: all metrics of one run of a kernel. Its
// heading has their descriptions, or their names. The row below the heading may have units.
func nvprofTrace(t *table) {
	if t.at("Kernel") == "" {
		return
	}
	k := t.kernel(fmt.Sprint(len(t.order)), t.at("Kernel"))
	for i, name := range t.head {
		if i < len(t.row) && !slices.Contains([]string{"Device", "Context", "Stream", "Kernel", "Correlation_ID"},
			name) {
			t.nvprof(k, name, t.row[i])
		}
	}
}

// nvprof notes a metric of nvprof. A level such as "Low (2)" is of 10.
func (t *table) nvprof(k *counted, name, value string) {
	isPercent := strings.Contains(value, "%")
	if i, j := strings.IndexByte(value, '('), strings.IndexByte(value, ')'); i >= 0 && j > i {
		value = value[i+1 : j]
	}
	t.note(k, ofNvprof, name, value, func(c *traces.CounterInfo) float64 {
		if isPercent {
			return 1
		}
		return c.NvprofScale
	})
}

// decimalComma finds a number with a decimal comma, as ncu writes in languages that have one: with
// one, two, four or more digits after it, or points that divide thousands before it.
var decimalComma = regexp.MustCompile(`"\d[\d.]*,(\d{1,2}|\d{4,})"|"\d{1,3}(\.\d{3})+,\d+"`)

// number reads "1,024.5" or "95.3%"; in a table with decimal commas "1.024,5".
func (t *table) number(s string) (float64, bool) {
	thousands, decimal := ",", "."
	if t.comma {
		thousands, decimal = decimal, thousands
	}
	s = strings.TrimSuffix(strings.TrimSpace(s), "%")
	s = strings.NewReplacer(thousands, "", decimal, ".", "\u00a0", "", "\u202f", "", "\u2019", "", "'", "", " ",
		"").Replace(s)
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

// Joined says how well counters and kernels fit.
type Joined struct {
	Kernels int // of the recording
	ByOrder int // that have the counters of one kernel, by its place among those of its name and grid
	ByName  int // that have the mean of those of their name and grid
	Unused  int // kernels with counters that the recording does not have
}

// key is what the kernels of two runs have in common.
type key struct {
	name        string
	grid, block [3]int32
}

// Join gives the kernels of a recording their counters. Kernels fit by their name, without
// namespaces and types, which tools write differently, and by grid and block. Among these, the
// order decides if the recording has as many, or a multiple: a pass was recorded several times
// and counted once. Otherwise each has the mean. Counters that the kernels had are replaced.
func (s *Set) Join(t *traces.Trace) Joined {
	byKey := map[key][]*Kernel{}
	for i := range s.Kernels {
		k := &s.Kernels[i]
		at := key{base(k.Name), k.Grid, k.Block}
		byKey[at] = append(byKey[at], k)
	}
	events := map[key][]*traces.Event{}
	var j Joined
	for i := range t.Events {
		if e := &t.Events[i]; e.Kind == traces.KindKernel {
			j.Kernels++
			at := key{base(e.Name), e.Grid, e.Block}
			if byKey[at] == nil { // one of the two does not say the grid
				at = key{name: at.name}
			}
			events[at] = append(events[at], e)
		}
	}
	// Kernels without a grid take those of all grids.
	for at, list := range events {
		if byKey[at] == nil && at.grid == [3]int32{} &&
			!slices.ContainsFunc(list, func(e *traces.Event) bool { return e.Grid != [3]int32{} }) {
			for i := range s.Kernels {
				if k := &s.Kernels[i]; base(k.Name) == at.name {
					byKey[at] = append(byKey[at], k)
				}
			}
		}
	}
	var whats traces.Interner
	count := func(e *traces.Event, c *traces.Counters) {
		whats.Change(e, func(w *traces.What) { w.Counters = c })
	}
	used := map[*Kernel]bool{}
	for at, list := range events {
		found := byKey[at]
		if len(found) == 0 {
			continue
		}
		for _, k := range found {
			used[k] = true
		}
		if n := len(found); len(list)%n == 0 && found[0].Runs == 1 {
			for i, e := range list {
				count(e, found[i%n].Counters)
			}
			j.ByOrder += len(list)
			continue
		}
		var mean traces.CounterMean
		for _, k := range found {
			mean.Add(k.Counters, int64(k.Runs))
		}
		counted := mean.Counters()
		for _, e := range list {
			count(e, counted)
		}
		j.ByName += len(list)
	}
	j.Unused = len(s.Kernels) - len(used)
	return j
}

// base returns the name of a kernel without its return type, namespaces, template arguments and
// parameters: tools write those differently, or not at all.
func base(name string) string {
	name = traces.BareKernel(name)
	return strings.TrimSpace(name[strings.LastIndex(name, ":")+1:])
}
