package tasks

import (
	"encoding/csv"
	"io"
	"maps"
	"slices"
	"strconv"

	"gpt2scope/internal/stats"
	"gpt2scope/predict"
)

// Profile is a table of one task, a row for each size, in the form that notebooks about GPU
// profiling read.
type Profile struct {
	File string
	task string
	size func(Shape) (int, bool) // of a shape; false if it has no place in the table
}

// Profiles are the tables of the three tasks that such notebooks have.
var Profiles = []Profile{
	{"task1_vector_addition_profile.csv", "vector.add", func(s Shape) (int, bool) { return s.Get("n"), true }},
	{"task2_matrix_multiplication_profile.csv", "matmul", func(s Shape) (int, bool) {
		m := s.Get("m")
		return m, m == s.Get("n") && m == s.Get("k")
	}},
	{"task3_parallel_reduction_profile.csv", "reduce.sum", func(s Shape) (int, bool) { return s.Get("n"), true }},
}

// profileColumns are the columns: medians of the tuned ways in float32, warm, in milliseconds. A
// GPU's time is with copies from and to ordinary memory, as one first writes it; then its parts,
// and the times from pinned memory and without copies.
var profileColumns = []struct {
	name   string
	device string
	memory predict.Memory
	time   func(*Sample) float64
}{
	{"cpu_time_ms", CPU, MemoryHost, func(s *Sample) float64 { return s.Us }},
	{"gpu_time_ms", GPU, MemoryPageable, func(s *Sample) float64 { return s.Us }},
	{"gpu_h2d_ms", GPU, MemoryPageable, func(s *Sample) float64 { return s.H2DUs }},
	{"gpu_kernel_ms", GPU, MemoryPageable, func(s *Sample) float64 { return s.KernelUs }},
	{"gpu_d2h_ms", GPU, MemoryPageable, func(s *Sample) float64 { return s.D2HUs }},
	{"gpu_pinned_time_ms", GPU, MemoryPinned, func(s *Sample) float64 { return s.Us }},
	{"gpu_resident_time_ms", GPU, MemoryResident, func(s *Sample) float64 { return s.Us }},
}

// rows returns the times of the table in milliseconds, by size and column.
func (p Profile) rows(samples []Sample) map[int][][]float64 {
	times := map[int][][]float64{}
	for i := range samples {
		s := &samples[i]
		shape, err := ParseShape(s.Shape)
		if err != nil || s.Task != p.task || s.Variant != Tuned || s.DType != Float32 || s.Cold {
			continue
		}
		size, ok := p.size(shape)
		if !ok {
			continue
		}
		if times[size] == nil {
			times[size] = make([][]float64, len(profileColumns))
		}
		for j, c := range profileColumns {
			if v := c.time(s); kindOf(s.Device) == c.device && s.Memory == c.memory && v > 0 {
				times[size][j] = append(times[size][j], v/1e3)
			}
		}
	}
	return times
}

// Has tells whether the table has rows of these samples.
func (p Profile) Has(samples []Sample) bool { return len(p.rows(samples)) > 0 }

// Write writes the table as CSV. A time that was not measured is an empty cell.
func (p Profile) Write(w io.Writer, samples []Sample) error {
	times := p.rows(samples)
	c := csv.NewWriter(w)
	row := []string{"size"}
	for _, column := range profileColumns {
		row = append(row, column.name)
	}
	c.Write(row)
	for _, size := range slices.Sorted(maps.Keys(times)) {
		row = []string{strconv.Itoa(size)}
		for _, all := range times[size] {
			cell := ""
			if len(all) > 0 {
				cell = strconv.FormatFloat(stats.MedianOf(all), 'g', 6, 64)
			}
			row = append(row, cell)
		}
		c.Write(row)
	}
	c.Flush()
	return c.Error()
}
