package tasks

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"gpt2scope/internal/stats"
)

// Kernel is what Nsight Systems and Nsight Compute say of a kernel. It explains a time afterwards,
// and never enters a prediction: it exists only after a run.
type Kernel struct {
	Name     string `json:"name"`
	Task     string `json:"task"`    // whose kernel it is; "" if it is not known
	Variant  string `json:"variant"` // as in the samples
	Launches int    `json:"launches"`

	// Null where the tool's file was not given, or lacks the metric. Counters are medians over
	// the launches that Nsight Compute measured.
	MedianUs   *float64 `json:"median_us"`         // by Nsight Systems
	SampleUs   *float64 `json:"sample_us"`         // the samples' median time of the way's kernels, over all its sizes
	Occupancy  *float64 `json:"occupancy"`         // achieved, percent
	Memory     *float64 `json:"memory_throughput"` // percent of the highest
	Compute    *float64 `json:"compute_throughput"`
	L1HitRate  *float64 `json:"l1_hit_rate"` // percent
	L2HitRate  *float64 `json:"l2_hit_rate"`
	TimedByNcu int      `json:"measured_launches"` // by Nsight Compute
}

// Explanation is what files of the tools say, laid beside samples.
type Explanation struct {
	Kernels []Kernel `json:"kernels"` // the longest in all first
	Calls   []Total  `json:"calls"`   // of the CUDA API
	Ranges  []Total  `json:"ranges"`  // of NVTX

	totals map[string]float64
	ncu    map[string]map[string][]float64
}

// Total is a row of a table of Nsight Systems.
type Total struct {
	Name     string  `json:"name"`
	Count    int     `json:"count"`
	TotalUs  float64 `json:"total_us"`
	MedianUs float64 `json:"median_us"`
}

// kernelWays are the kernels of kernels.cu by the way that launches them; sum_final belongs to the
// tuned sum as well.
var kernelWays = map[string][2]string{
	"add_tuned": {"vector.add", Tuned}, "add_block": {"vector.add", "one-block"}, "add_thread": {"vector.add", "one-thread"},
	"square_tuned": {"vector.square", Tuned}, "square_powf": {"vector.square", "powf"}, "square_pow": {"vector.square", "pow"},
	"square_block": {"vector.square", "one-block"}, "square_thread": {"vector.square", "one-thread"},
	"sum_partial": {"reduce.sum", Tuned}, "sum_final": {"reduce.sum", Tuned}, "sum_block": {"reduce.sum", "one-block"}, "sum_thread": {"reduce.sum", "one-thread"},
	"product_naive": {"matmul", "naive"}, "product_few": {"matmul", "one-block"},
}

// Bounds of a file, since it may have been damaged or replaced.
const (
	maxToolLine = 1 << 20
	maxToolRows = 1_000_000
)

// Add reads a file: the CSV of 'nsys stats' with any of the reports cuda_gpu_kern_sum,
// cuda_api_sum and nvtx_sum, or of 'ncu --csv'. Lines that are of neither are left out.
func (e *Explanation) Add(r io.Reader) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxToolLine)
	var head []string
	found, rows := false, 0
	for lines.Scan() {
		cells, err := csv.NewReader(strings.NewReader(lines.Text())).Read()
		switch {
		case err != nil || len(cells) < 5:
			head = nil
			continue
		case cells[0] == "Time (%)" || cells[0] == "ID" && slices.Contains(cells, "Metric Name"):
			head, found = slices.Clone(cells), true
			continue
		case head == nil || len(cells) != len(head):
			continue
		}
		if rows++; rows > maxToolRows {
			return fmt.Errorf("it has more than %d rows", maxToolRows)
		}
		e.row(head, cells)
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if !found {
		return errors.New("it is neither the CSV of 'nsys stats --format csv' nor that of 'ncu --csv'")
	}
	return nil
}

// row takes a row of one of the tables.
func (e *Explanation) row(head, cells []string) {
	at := func(name string) string {
		if i := slices.Index(head, name); i >= 0 {
			return cells[i]
		}
		return ""
	}
	if metric := at("Metric Name"); metric != "" {
		v, err := strconv.ParseFloat(strings.ReplaceAll(at("Metric Value"), ",", ""), 64)
		if err != nil || at("Metric Unit") != "%" {
			return
		}
		if e.ncu == nil {
			e.ncu = map[string]map[string][]float64{}
		}
		name := plainName(at("Kernel Name"))
		if e.ncu[name] == nil {
			e.ncu[name] = map[string][]float64{}
		}
		e.ncu[name][metric] = append(e.ncu[name][metric], v)
		return
	}
	number := func(name string) float64 {
		v, err := strconv.ParseFloat(strings.ReplaceAll(at(name), ",", ""), 64)
		if err != nil || math.IsInf(v, 0) || math.IsNaN(v) {
			return 0
		}
		return v
	}
	t := Total{TotalUs: number("Total Time (ns)") / 1e3, MedianUs: number("Med (ns)") / 1e3}
	switch {
	case at("Range") != "":
		t.Name, t.Count = at("Range"), int(number("Instances"))
		e.Ranges = append(e.Ranges, t)
	case at("Num Calls") != "":
		t.Name, t.Count = at("Name"), int(number("Num Calls"))
		e.Calls = append(e.Calls, t)
	case at("Name") != "":
		k := Kernel{Name: plainName(at("Name")), Launches: int(number("Instances")), MedianUs: &t.MedianUs}
		e.Kernels = append(e.Kernels, k)
		if e.totals == nil {
			e.totals = map[string]float64{}
		}
		e.totals[k.Name] += t.TotalUs
	}
}

// plainName is a kernel's name without its parameters.
func plainName(name string) string {
	name, _, _ = strings.Cut(name, "(")
	return strings.TrimSpace(name)
}

// Beside lays what was added beside samples.
func (e *Explanation) Beside(samples []Sample) {
	times := map[[2]string][]float64{}
	for i := range samples {
		if s := &samples[i]; kindOf(s.Device) == GPU && s.KernelUs > 0 {
			times[[2]string{s.Task, s.Variant}] = append(times[[2]string{s.Task, s.Variant}], s.KernelUs)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.ncu)) {
		if !slices.ContainsFunc(e.Kernels, func(k Kernel) bool { return k.Name == name }) {
			e.Kernels = append(e.Kernels, Kernel{Name: name})
		}
	}
	for i := range e.Kernels {
		k := &e.Kernels[i]
		way := kernelWays[k.Name]
		k.Task, k.Variant = way[0], way[1]
		if us := times[way]; len(us) > 0 {
			m := stats.MedianOf(us)
			k.SampleUs = &m
		}
		for metric, to := range map[string]**float64{"Achieved Occupancy": &k.Occupancy, "Memory Throughput": &k.Memory, "Compute (SM) Throughput": &k.Compute, "L1/TEX Hit Rate": &k.L1HitRate, "L2 Hit Rate": &k.L2HitRate} {
			if values := e.ncu[k.Name][metric]; len(values) > 0 {
				m := stats.MedianOf(values)
				*to = &m
				k.TimedByNcu = max(k.TimedByNcu, len(values))
			}
		}
	}
	slices.SortStableFunc(e.Kernels, func(a, b Kernel) int { return cmp.Compare(e.totals[b.Name], e.totals[a.Name]) })
}
