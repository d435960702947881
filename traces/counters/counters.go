// Package counters reads hardware counters of kernels, as Nsight Compute (ncu --csv) prints them, and joins them to the
// kernels of a recording.
//
// ncu runs a kernel alone, several times, and slows the program down, so that a timeline of such a run is worthless. A
// recording of nsys, PyTorch's profiler or gpt2scope has the times. The two are of different runs of one program: its
// kernels have the same names and grids, in the same order.
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
	"gpt2scope/internal/lazyregexp"
	"gpt2scope/traces"
)

// Kernel is a kernel with its counters.
type Kernel struct {
	Name        string
	Grid, Block [3]int32 // zero if the file does not have them
	Counters    traces.Counters

	active, elapsed float64 // cycles; 0 until they are known
}

// Bounds of a file.
const (
	mostLines   = 10_000 // before the heading
	mostRows    = 5_000_000
	longestLine = 1 << 20 // bytes; the heading of the page "raw" has 2,000 names
)

var errNone = errors.New("has no counters: it needs the output of ncu --csv --page details (or raw)")

// Read reads the CSV of ncu --csv, of its page "details" or "raw" or summed by kernel (--print-summary per-kernel): the
// kernels in the order of the file. Lines before the heading, such as those that the profiled program printed, are
// skipped.
func Read(r io.Reader) ([]*Kernel, error) {
	in := bufio.NewReaderSize(r, longestLine)
	for range mostLines {
		line, err := in.ReadSlice('\n')
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, fmt.Errorf("cannot be read: %w", humanize.Cause(err))
		}
		if text := string(line); strings.Contains(text, `"Kernel Name"`) {
			sample, _ := in.Peek(longestLine)
			return read(io.MultiReader(strings.NewReader(text), in), decimalComma().MatchString(string(sample)))
		}
		if err != nil {
			break
		}
	}
	return nil, errNone
}

// table is a CSV that is being read.
type table struct {
	column  map[string]int
	row     []string
	comma   bool // numbers have a decimal comma
	kernels map[string]*Kernel
	order   []*Kernel
}

// at returns the text of a column, "" if the row or table has none.
func (t *table) at(name string) string {
	i, ok := t.column[name]
	if !ok || i >= len(t.row) {
		return ""
	}
	return t.row[i]
}

// read reads the heading and the rows.
func read(r io.Reader, comma bool) ([]*Kernel, error) {
	in := csv.NewReader(r)
	in.FieldsPerRecord, in.LazyQuotes, in.TrimLeadingSpace = -1, true, true
	head, err := in.Read()
	if err != nil {
		return nil, fmt.Errorf("its heading cannot be read: %w", err)
	}
	t := &table{column: map[string]int{}, comma: comma, kernels: map[string]*Kernel{}}
	for i, name := range head {
		t.column[strings.TrimPrefix(name, "\ufeff")] = i
	}
	_, hasID := t.column["ID"]
	_, hasRuns := t.column["Invocations"]
	_, isDetails := t.column["Metric Name"]
	if !hasID && !(hasRuns && isDetails) {
		return nil, errNone
	}
	for n := 0; ; n++ {
		if t.row, err = in.Read(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("cannot be read: %w", err)
		}
		if n == mostRows {
			return nil, fmt.Errorf("has more than %d rows: count fewer kernels, or fewer metrics", mostRows)
		}
		switch metric := t.at("Metric Name"); {
		case strings.HasPrefix(t.row[0], "==") || slices.Equal(t.row, head): // of another process, whose output follows
		case isDetails && metric != "": // a row of advice has none
			t.kernel().note(t, metric, t.at("Metric Unit"), cmp.Or(t.at("Metric Value"), t.at("Average")))
		case !isDetails && t.at("ID") != "": // below the heading are units
			k := t.kernel()
			for i, name := range head {
				if i < len(t.row) && strings.Contains(name, "__") {
					k.note(t, name, "", t.row[i])
				}
			}
		}
	}
	if len(t.order) == 0 {
		return nil, errors.New("has no kernels with counters")
	}
	return t.order, nil
}

// kernel returns the kernel of a row, which it adds if no row had it.
func (t *table) kernel() *Kernel {
	id := t.at("Process ID") + " " + t.at("ID")
	if t.at("ID") == "" { // all runs of a kernel
		id += t.at("Kernel Name") + t.at("Grid Size") + t.at("Block Size")
	}
	k := t.kernels[id]
	if k == nil {
		k = &Kernel{Name: t.at("Kernel Name"), Grid: dims(t.at("Grid Size")), Block: dims(t.at("Block Size")),
			Counters: traces.Counters{}}
		t.kernels[id] = k
		t.order = append(t.order, k)
	}
	return k
}

// note notes a metric of a kernel. From the cycles in which an SM is active, in the mean, and those of the kernel it is
// known which share of the time SMs are active, which ncu does not print.
func (k *Kernel) note(t *table, name, unit, value string) {
	v, ok := t.number(value)
	if !ok {
		return
	}
	if unit == "cycle" || unit == "" {
		switch name {
		case "SM Active Cycles", "sm__cycles_active.avg":
			k.active = v
		case "Elapsed Cycles", "gpc__cycles_elapsed.max":
			k.elapsed = v
		}
		if k.active > 0 && k.elapsed > 0 {
			k.Counters[traces.CounterSMActive] = min(100, 100*k.active/k.elapsed)
		}
	}
	for _, c := range traces.AllCounters {
		// The first of a counter's names that the file has counts.
		place := slices.Index(c.Ncu, name)
		if _, has := k.Counters[c.Key]; place == 0 || place > 0 && !has {
			if c.Scale != 0 && !strings.HasSuffix(name, ".pct") {
				v *= c.Scale
			}
			k.Counters[c.Key] = v
		}
	}
}

// decimalComma finds a number with a decimal comma, as ncu writes in languages that have one: with
// one, two, four or more digits after it, or points that divide thousands before it.
var decimalComma = lazyregexp.New(`"\d[\d.]*,(\d{1,2}|\d{4,})"|"\d{1,3}(\.\d{3})+,\d+"`)

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
func Join(t *traces.Trace, kernels []*Kernel) Joined {
	byKey := map[key][]*Kernel{}
	for _, k := range kernels {
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
			for _, k := range kernels {
				if base(k.Name) == at.name {
					byKey[at] = append(byKey[at], k)
				}
			}
		}
	}
	var whats traces.Interner
	count := func(e *traces.Event, c *traces.Counters) {
		whats.Change(e, func(w *traces.What) { w.Counters = c })
	}
	for at, list := range events {
		found := byKey[at]
		if len(found) == 0 {
			continue
		}
		if n := len(found); len(list)%n == 0 {
			for i, e := range list {
				count(e, &found[i%n].Counters)
			}
			j.ByOrder += len(list)
			continue
		}
		var mean traces.CounterMean
		for _, k := range found {
			mean.Add(&k.Counters, 1)
		}
		counted := mean.Counters()
		for _, e := range list {
			count(e, &counted)
		}
		j.ByName += len(list)
	}
	return j
}

// base returns the name of a kernel without its return type, namespaces, template arguments and
// parameters: tools write those differently, or not at all.
func base(name string) string {
	name = traces.BareKernel(name)
	return strings.TrimSpace(name[strings.LastIndex(name, ":")+1:])
}
