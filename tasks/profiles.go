package tasks

import (
	"maps"
	"slices"
	"strconv"

	"gpt2scope/internal/stats"
	"gpt2scope/predict"
)

// Profile is a table of one task along a line of shapes, a row for each size, in the form that notebooks about GPU
// profiling read.
type Profile struct{ File, task, line string }

// Profiles are the tables of the three tasks that such notebooks have.
var Profiles = []Profile{
	{"task1_vector_addition_profile.csv", "vector.add", "n=*"},
	{"task2_matrix_multiplication_profile.csv", "matmul", "m=*,n=*,k=*"},
	{"task3_parallel_reduction_profile.csv", "reduce.sum", "n=*"},
}

// profileColumns are the columns: medians of the tuned ways in float32, warm, in milliseconds. A GPU's time is with
// copies from and to ordinary memory, as one first writes it; then its parts, and the times from pinned memory and
// without copies.
var profileColumns = []struct {
	name, device string
	memory       predict.Memory
	time         string
}{
	{"cpu_time_ms", CPU, predict.Host, TimeWall},
	{"gpu_time_ms", GPU, predict.Pageable, TimeWall},
	{"gpu_h2d_ms", GPU, predict.Pageable, TimeH2D},
	{"gpu_kernel_ms", GPU, predict.Pageable, TimeKernel},
	{"gpu_d2h_ms", GPU, predict.Pageable, TimeD2H},
	{"gpu_pinned_time_ms", GPU, predict.Pinned, TimeWall},
	{"gpu_resident_time_ms", GPU, predict.Resident, TimeWall},
}

// Table returns the table as rows of CSV, the names of the columns first; nil if it has no rows. A time that was not
// measured is an empty cell.
func (p Profile) Table(samples []Sample) [][]string {
	times := map[int][][]float64{} // by size and column
	for k, curve := range curvesOf(samples) {
		for i, c := range profileColumns {
			if k.task != p.task || k.line != p.line || k.dtype != Float32 ||
				kindOf(k.device) != c.device || k.memory != c.memory || k.time != c.time {
				continue
			}
			for size, us := range curve {
				if times[size] == nil {
					times[size] = make([][]float64, len(profileColumns))
				}
				times[size][i] = append(times[size][i], us...)
			}
		}
	}
	if len(times) == 0 {
		return nil
	}
	row := []string{"size"}
	for _, c := range profileColumns {
		row = append(row, c.name)
	}
	rows := [][]string{row}
	for _, size := range slices.Sorted(maps.Keys(times)) {
		row := []string{strconv.Itoa(size)}
		for _, us := range times[size] {
			cell := ""
			if len(us) > 0 {
				cell = strconv.FormatFloat(stats.MedianOf(us)/1e3, 'g', 6, 64)
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	return rows
}
