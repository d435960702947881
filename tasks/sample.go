package tasks

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"
	"unique"
)

// Sample is one measured repeat of a task: a row of samples.csv. Times are in microseconds;
// one that was not measured is NaN, and an empty cell of the file.
type Sample struct {
	Machine string // a name of the computer, for people
	Task    string // "vector.add"
	Shape   string // as [Shape.String] writes it
	DType   string // "float32", "bfloat16"
	Device  string // "cpu", "cuda:0"
	Variant string // "tuned", "scalar", "one thread", ...: see [Way]
	Memory  string // MemoryHost, ...: where inputs and results are
	Start   string // StartWarm, StartCold
	Repeat  int    // from 1 on

	SubmitUs float64 // until the calls that queue the work had returned
	H2DUs    float64 // the copy of the inputs to the device
	KernelUs float64 // the kernels, by events of the device; on the CPU the computation
	D2HUs    float64 // the copy of the result to the host
	WallUs   float64 // all of it, by the host's clock; of a cold start, of the process

	FLOPs    float64 // by the task's formula, as the next five
	Bytes    float64 // that the device reads and writes at least
	BytesIn  int64   // copied to the device; 0 if they are there
	BytesOut int64   // copied from the device
	Steps    int     // launches at least, one after another
	Rows     int     // of a matrix product: rows of the first matrix; of a pass: tokens of all sequences; else 0

	FloorUs float64 // the least time of FLOPs and bytes on the device: see ceilings.Set.Floor

	SMClockMHz   float64 // of the GPU after the repeat
	Throttle     string  // why the GPU's clock was lowered, "" if it was not
	UsedByOthers bool    // another process used the GPU
	Load         float64 // other work on the processors, as a number of them
	Disturbed    bool    // the time may be too long, since others used the machine or the clock was lowered

	MachineKey string    // names the device and the versions of what ran on it, as a set of ceilings does
	Time       time.Time // when the repeat ended, UTC
}

// Where inputs and results are.
const (
	MemoryHost     = "host"     // a CPU's
	MemoryPageable = "pageable" // ordinary memory, copied to the GPU and back
	MemoryPinned   = "pinned"   // memory that the GPU copies from and to by itself
	MemoryResident = "resident" // the GPU's: nothing is copied
)

// What a repeat begins from.
const (
	StartWarm = "warm" // all is open, loaded and has run before
	StartCold = "cold" // a process that has just started
)

// column is a column of samples.csv.
type column struct {
	name  string
	write func(*Sample) string
	read  func(*Sample, string) error
}

func text(name string, field func(*Sample) *string) column {
	return column{name, func(s *Sample) string { return *field(s) }, func(s *Sample, cell string) error {
		if len(cell) > maxCell {
			return fmt.Errorf("a text of %d bytes; %d is the most", len(cell), maxCell)
		}
		*field(s) = unique.Make(cell).Value() // samples have few texts; that of a cell would keep its whole line
		return nil
	}}
}

// number is a column of a number of at least 0, empty for NaN.
func number(name string, field func(*Sample) *float64) column {
	return column{name, func(s *Sample) string {
		if math.IsNaN(*field(s)) {
			return ""
		}
		return strconv.FormatFloat(*field(s), 'g', -1, 64)
	}, func(s *Sample, cell string) error {
		if cell == "" {
			*field(s) = math.NaN()
			return nil
		}
		v, err := strconv.ParseFloat(cell, 64)
		if err != nil || !(v >= 0 && v <= maxNumber) {
			return fmt.Errorf("%q is not a number from 0 to %g", cell, float64(maxNumber))
		}
		*field(s) = v
		return nil
	}}
}

func whole[T int | int64](name string, least T, field func(*Sample) *T) column {
	return column{name, func(s *Sample) string { return strconv.FormatInt(int64(*field(s)), 10) }, func(s *Sample, cell string) error {
		v, err := strconv.ParseInt(cell, 10, 64)
		if err != nil || v < int64(least) || v > maxNumber {
			return fmt.Errorf("%q is not a whole number from %d on", cell, least)
		}
		*field(s) = T(v)
		return nil
	}}
}

func flag(name string, field func(*Sample) *bool) column {
	return column{name, func(s *Sample) string { return strconv.FormatBool(*field(s)) }, func(s *Sample, cell string) (err error) {
		if *field(s), err = strconv.ParseBool(cell); err != nil {
			return fmt.Errorf("%q is neither true nor false", cell)
		}
		return nil
	}}
}

// Bounds of a file of samples, since it may have been damaged or replaced.
const (
	maxNumber  = 1 << 62
	maxCell    = 1 << 10
	maxSamples = 5_000_000
	maxRecord  = 1 << 20 // bytes of a row
)

var columns = []column{
	text("machine", func(s *Sample) *string { return &s.Machine }),
	text("task", func(s *Sample) *string { return &s.Task }),
	text("shape", func(s *Sample) *string { return &s.Shape }),
	text("dtype", func(s *Sample) *string { return &s.DType }),
	text("device", func(s *Sample) *string { return &s.Device }),
	text("variant", func(s *Sample) *string { return &s.Variant }),
	text("memory", func(s *Sample) *string { return &s.Memory }),
	text("start", func(s *Sample) *string { return &s.Start }),
	whole("repeat", 1, func(s *Sample) *int { return &s.Repeat }),
	number("submit_us", func(s *Sample) *float64 { return &s.SubmitUs }),
	number("h2d_us", func(s *Sample) *float64 { return &s.H2DUs }),
	number("kernel_us", func(s *Sample) *float64 { return &s.KernelUs }),
	number("d2h_us", func(s *Sample) *float64 { return &s.D2HUs }),
	number("wall_us", func(s *Sample) *float64 { return &s.WallUs }),
	number("flops", func(s *Sample) *float64 { return &s.FLOPs }),
	number("bytes", func(s *Sample) *float64 { return &s.Bytes }),
	whole("bytes_in", 0, func(s *Sample) *int64 { return &s.BytesIn }),
	whole("bytes_out", 0, func(s *Sample) *int64 { return &s.BytesOut }),
	whole("steps", 0, func(s *Sample) *int { return &s.Steps }),
	whole("rows", 0, func(s *Sample) *int { return &s.Rows }),
	number("floor_us", func(s *Sample) *float64 { return &s.FloorUs }),
	number("sm_clock_mhz", func(s *Sample) *float64 { return &s.SMClockMHz }),
	text("throttle", func(s *Sample) *string { return &s.Throttle }),
	flag("used_by_others", func(s *Sample) *bool { return &s.UsedByOthers }),
	number("load", func(s *Sample) *float64 { return &s.Load }),
	flag("disturbed", func(s *Sample) *bool { return &s.Disturbed }),
	text("machine_key", func(s *Sample) *string { return &s.MachineKey }),
	{"time", func(s *Sample) string { return s.Time.UTC().Format(time.RFC3339Nano) }, func(s *Sample, cell string) (err error) {
		if s.Time, err = time.Parse(time.RFC3339Nano, cell); err != nil {
			return fmt.Errorf("%q is not a time such as 2026-01-31T12:00:00Z", cell)
		}
		return nil
	}},
}

// cells writes a sample as the cells of a row.
func cells(s *Sample) []string {
	row := make([]string, len(columns))
	for i, column := range columns {
		row[i] = column.write(s)
	}
	return row
}

// parse reads what cells wrote.
func parse(row []string) (Sample, error) {
	if len(row) != len(columns) {
		return Sample{}, fmt.Errorf("%d cells of a sample; expected %d", len(row), len(columns))
	}
	return read(func(i int) string { return row[i] })
}

// read reads a sample from the cell of each column.
func read(cell func(column int) string) (s Sample, err error) {
	for i, column := range columns {
		if err := column.read(&s, cell(i)); err != nil {
			return s, fmt.Errorf("column %s: %w", column.name, err)
		}
	}
	shape, err := ParseShape(s.Shape)
	switch {
	case err != nil:
		return s, fmt.Errorf("column shape: %w", err)
	case shape.String() != s.Shape:
		return s, fmt.Errorf("column shape: %q is written %s", s.Shape, shape)
	case s.Task == "" || s.Device == "":
		return s, errors.New("task or device is empty")
	}
	return s, nil
}

// WriteSamples writes samples as CSV under a line of names.
func WriteSamples(w io.Writer, samples []Sample) error {
	c := csv.NewWriter(w)
	var names []string
	for _, column := range columns {
		names = append(names, column.name)
	}
	c.Write(names)
	for i := range samples {
		c.Write(cells(&samples[i]))
	}
	c.Flush()
	return c.Error()
}

// ReadSamples reads what [WriteSamples] wrote. Columns may stand in any order, and others
// beside them are left out. An error names the line and the column.
func ReadSamples(r io.Reader) ([]Sample, error) {
	bounded := &recordReader{r, maxRecord}
	c := csv.NewReader(bounded)
	c.ReuseRecord = true
	head, err := c.Read()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("the file is empty; expected the samples of 'infer tasks bench'")
	}
	if err != nil {
		return nil, fmt.Errorf("not a CSV file: %w", err)
	}
	at := make([]int, len(columns))
	for i, column := range columns {
		at[i] = -1
		for j, name := range head {
			if name == column.name && at[i] < 0 {
				at[i] = j
			}
		}
		if at[i] < 0 {
			return nil, fmt.Errorf("column %s is missing; expected the samples of 'infer tasks bench'", column.name)
		}
	}
	var samples []Sample
	for {
		bounded.left = maxRecord
		row, err := c.Read()
		if errors.Is(err, io.EOF) {
			return samples, nil
		}
		if err != nil {
			return nil, err // names the line
		}
		line, _ := c.FieldPos(0)
		if len(samples) == maxSamples {
			return nil, fmt.Errorf("line %d: more than %d samples", line, maxSamples)
		}
		s, err := read(func(i int) string { return row[at[i]] })
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		samples = append(samples, s)
	}
}

// recordReader gives at most so many bytes until left is set again: an unclosed quote would take all that follows for one cell.
type recordReader struct {
	io.Reader
	left int
}

func (r *recordReader) Read(p []byte) (int, error) {
	if r.left <= 0 {
		return 0, fmt.Errorf("a row of more than %d bytes", maxRecord)
	}
	n, err := r.Reader.Read(p[:min(len(p), r.left)])
	r.left -= n
	return n, err
}
