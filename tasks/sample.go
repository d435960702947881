package tasks

import (
	"encoding"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unique"

	"gpt2scope/predict"
)

// Sample is one measured repeat of a task: a row of samples.csv, whose columns have the names of the fields in JSON. A
// time that was not measured is 0, and an empty cell of the file.
type Sample struct {
	predict.Row // what a prediction is fitted to; the shape is as [Shape.String] writes it

	Variant  string  `json:"variant"`             // "tuned", "scalar", "one thread", ...: see [Way]
	Repeat   int     `json:"repeat"`              // from 1 on
	SubmitUs float64 `json:"submit_us,omitempty"` // until the calls that queue the work had returned
	KernelUs float64 `json:"kernel_us,omitempty"` // the kernels, by events of the device; on the CPU the computation

	SMClockMHz   float64 `json:"sm_clock_mhz,omitempty"` // of the GPU after the repeat
	Throttle     string  `json:"throttle"`               // why the GPU's clock was lowered, "" if it was not
	UsedByOthers bool    `json:"used_by_others"`         // another process used the GPU
	Load         float64 `json:"load,omitempty"`         // other work on the processors, as a number of them
	Disturbed    bool    `json:"disturbed"`              // others used the machine, or the clock was lowered: the time may be too long

	MachineKey string    `json:"machine_key"` // names the device with its versions, as a set of ceilings does
	Time       time.Time `json:"time"`        // when the repeat ended, UTC
}

// Where inputs and results are.
const (
	MemoryHost     = predict.Host     // a CPU's
	MemoryPageable = predict.Pageable // ordinary memory, copied to the GPU and back
	MemoryPinned   = predict.Pinned   // memory that the GPU copies from and to by itself
	MemoryResident = predict.Resident // the GPU's: nothing is copied
)

// Rows returns what a prediction is fitted to: rows of the tuned variants with a floor, and of a case that was measured
// disturbed and undisturbed only the latter. It counts those left out as disturbed, and for want of a floor.
func Rows(samples []Sample) (rows []predict.Row, disturbed, noFloor int) {
	undisturbed := map[predict.Case]bool{}
	for i := range samples {
		if s := &samples[i]; s.Variant == Tuned && !s.Disturbed {
			undisturbed[s.Case()] = true
		}
	}
	for i := range samples {
		switch s := &samples[i]; {
		case s.Variant != Tuned: // a scheduler does not choose it
		case s.Disturbed && undisturbed[s.Case()]:
			disturbed++
		case !(s.FloorUs > 0) || !(s.Us > 0):
			noFloor++
		default:
			rows = append(rows, s.Row)
		}
	}
	return rows, disturbed, noFloor
}

// column is a column of samples.csv: a field.
type column struct {
	name  string
	field []int
	empty bool // 0 is an empty cell
}

// columns are the fields of a sample, those of embedded structs in their place.
var columns = columnsOf(reflect.TypeFor[Sample](), nil)

func columnsOf(t reflect.Type, at []int) (out []column) {
	for i := range t.NumField() {
		f, field := t.Field(i), append(slices.Clone(at), i)
		if f.Anonymous {
			out = append(out, columnsOf(f.Type, field)...)
			continue
		}
		name, option, _ := strings.Cut(f.Tag.Get("json"), ",")
		out = append(out, column{name, field, option == "omitempty" && (len(at) == 0 || strings.HasSuffix(name, "_us"))})
	}
	return out
}

// cells writes a sample as the cells of a row.
func cells(s *Sample) []string {
	row, v := make([]string, len(columns)), reflect.ValueOf(s).Elem()
	for i, c := range columns {
		f := v.FieldByIndex(c.field)
		switch x := f.Interface().(type) {
		case float64:
			if row[i] = strconv.FormatFloat(x, 'g', -1, 64); x == 0 && c.empty {
				row[i] = ""
			}
		case encoding.TextMarshaler:
			text, _ := x.MarshalText()
			row[i] = string(text)
		default:
			row[i] = fmt.Sprint(x)
		}
	}
	return row
}

// Bounds of a file of samples, since it may have been damaged or replaced.
const (
	maxNumber  = 1 << 62
	maxCell    = 1 << 10
	maxSamples = 5_000_000
	maxRecord  = 1 << 20 // bytes of a row
)

// set reads a cell into a field.
func (c *column) set(f reflect.Value, cell string) error {
	if len(cell) > maxCell {
		return fmt.Errorf("a text of %d bytes; %d is the most", len(cell), maxCell)
	}
	switch x := f.Addr().Interface().(type) {
	case *string:
		*x = unique.Make(cell).Value() // samples have few texts; that of a cell would keep its whole line
	case *float64:
		if cell == "" && c.empty {
			return nil
		}
		v, err := strconv.ParseFloat(cell, 64)
		if err != nil || !(v >= 0 && v <= maxNumber) {
			return fmt.Errorf("%q is not a number from 0 to %g", cell, float64(maxNumber))
		}
		*x = v
	case *int:
		v, err := strconv.Atoi(cell)
		if err != nil || v < 1 {
			return fmt.Errorf("%q is not a whole number from 1 on", cell)
		}
		*x = v
	case *bool:
		v, err := strconv.ParseBool(cell)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", cell)
		}
		*x = v
	case encoding.TextUnmarshaler:
		return x.UnmarshalText([]byte(cell))
	}
	return nil
}

// parse reads what cells wrote.
func parse(row []string) (s Sample, err error) {
	if len(row) != len(columns) {
		return s, fmt.Errorf("%d cells of a sample; expected %d", len(row), len(columns))
	}
	v := reflect.ValueOf(&s).Elem()
	for i := range columns {
		if err := columns[i].set(v.FieldByIndex(columns[i].field), row[i]); err != nil {
			return s, fmt.Errorf("column %s: %w", columns[i].name, err)
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

// ReadSamples reads what [WriteSamples] wrote. Columns may stand in any order, and others beside them are left out. An
// error names the line and the column.
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
		if at[i] = slices.Index(head, column.name); at[i] < 0 {
			return nil, fmt.Errorf("column %s is missing; expected the samples of 'infer tasks bench'", column.name)
		}
	}
	var samples []Sample
	row := make([]string, len(columns))
	for {
		bounded.left = maxRecord
		cells, err := c.Read()
		if errors.Is(err, io.EOF) {
			return samples, nil
		}
		if err != nil {
			return nil, err // names the line
		}
		for i, j := range at {
			row[i] = cells[j]
		}
		s, err := parse(row)
		if line, _ := c.FieldPos(0); err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		} else if len(samples) == maxSamples {
			return nil, fmt.Errorf("line %d: more than %d samples", line, maxSamples)
		}
		samples = append(samples, s)
	}
}

// recordReader gives at most so many bytes until left is set again: an unclosed quote would take all that follows for
// one cell.
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
