package tasks

import (
	"cmp"
	"context"
	"encoding"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unique"

	"gpt2scope/internal/humanize"
	"gpt2scope/predict"
	"gpt2scope/traces"
	"gpt2scope/weights"
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
	Disturbed    bool    `json:"disturbed"`              // others used the machine, or the clock was lowered

	MachineKey string    `json:"machine_key"` // names the device with its versions, as a set of ceilings does
	Time       time.Time `json:"time"`        // when the repeat ended, UTC
}

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
var columns = func() (all []column) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Sample]()) {
		if name, option, _ := strings.Cut(f.Tag.Get("json"), ","); !f.Anonymous {
			measured := len(f.Index) == 1 || strings.HasSuffix(name, "_us") // of work 0 is a number
			all = append(all, column{name, f.Index, option == "omitempty" && measured})
		}
	}
	return all
}()

// WriteSamples writes samples as CSV under a line of names.
func WriteSamples(w io.Writer, samples []Sample) error {
	c := csv.NewWriter(w)
	row := make([]string, len(columns))
	for i, column := range columns {
		row[i] = column.name
	}
	c.Write(row)
	for n := range samples {
		v := reflect.ValueOf(&samples[n]).Elem()
		for i, column := range columns {
			switch x := v.FieldByIndex(column.field).Interface().(type) {
			case float64:
				if row[i] = strconv.FormatFloat(x, 'g', -1, 64); x == 0 && column.empty {
					row[i] = ""
				}
			case encoding.TextMarshaler:
				text, _ := x.MarshalText()
				row[i] = string(text)
			default:
				row[i] = fmt.Sprint(x)
			}
		}
		c.Write(row)
	}
	c.Flush()
	return c.Error()
}

// maxNumber bounds the numbers of a file of samples, since it may have been damaged or replaced.
const maxNumber = 1 << 62

func (c *column) set(f reflect.Value, cell string) (err error) {
	switch x := f.Addr().Interface().(type) {
	case *string:
		*x = unique.Make(cell).Value() // samples have few texts; that of a cell would keep its whole line
	case *float64:
		if cell == "" && c.empty {
			return nil
		}
		if *x, err = strconv.ParseFloat(cell, 64); err != nil || !(*x >= 0 && *x <= maxNumber) {
			return fmt.Errorf("%q is not a number from 0 to %g", cell, float64(maxNumber))
		}
	case *int:
		if *x, err = strconv.Atoi(cell); err != nil || *x < 1 {
			return fmt.Errorf("%q is not a whole number from 1 on", cell)
		}
	case *bool:
		if *x, err = strconv.ParseBool(cell); err != nil {
			return fmt.Errorf("%q is neither true nor false", cell)
		}
	case *predict.Memory:
		*x = predict.Memory(unique.Make(cell).Value())
		return x.Check()
	case encoding.TextUnmarshaler:
		return x.UnmarshalText([]byte(cell))
	}
	return nil
}

// check finds a sample that names no work.
func (s *Sample) check() error {
	shape, err := ParseShape(s.Shape)
	switch {
	case err != nil:
		return fmt.Errorf("column shape: %w", err)
	case shape.String() != s.Shape:
		return fmt.Errorf("column shape: %q is written %s", s.Shape, shape)
	case s.Task == "" || s.Device == "":
		return errors.New("task or device is empty")
	}
	return nil
}

// ReadSamples reads what [WriteSamples] wrote. Columns may stand in any order, and others beside them are left out. An
// error names the line and the column.
func ReadSamples(r io.Reader) ([]Sample, error) {
	c := csv.NewReader(r)
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
	for {
		cells, err := c.Read()
		if errors.Is(err, io.EOF) {
			return samples, nil
		}
		if err != nil {
			return nil, err // names the line
		}
		var s Sample
		v := reflect.ValueOf(&s).Elem()
		for i := range columns {
			if err == nil {
				if err = columns[i].set(v.FieldByIndex(columns[i].field), cells[at[i]]); err != nil {
					err = fmt.Errorf("column %s: %w", columns[i].name, err)
				}
			}
		}
		if err = cmp.Or(err, s.check()); err != nil {
			line, _ := c.FieldPos(0)
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		samples = append(samples, s)
	}
}

// SamplesFile is the name of the file of samples in a directory of results.
const SamplesFile = "samples.csv"

// ReadFiles reads samples from files, plain or compressed by gzip, and from directories that hold [SamplesFile].
func ReadFiles(paths ...string) ([]Sample, error) {
	var all []Sample
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			path = filepath.Join(path, SamplesFile)
		}
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, humanize.Cause(err))
		}
		samples, err := ReadAny(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, humanize.Cause(err))
		}
		all = append(all, samples...)
	}
	return all, nil
}

// ReadAny reads samples, plain or compressed by gzip.
func ReadAny(r io.Reader) ([]Sample, error) {
	in, err := traces.Uncompressed(r)
	if err != nil {
		return nil, err
	}
	return ReadSamples(in)
}

// Write writes the samples and those tables of [Profiles] that have rows into a directory. A table without rows is
// not written, and one of earlier samples is removed, since it would be read as one of these.
func Write(ctx context.Context, dir string, samples []Sample) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("directory %s cannot be made: %w", dir, humanize.Cause(err))
	}
	file := filepath.Join(dir, SamplesFile)
	err := weights.WriteFile(ctx, file, func(w io.Writer) error { return WriteSamples(w, samples) })
	for _, p := range Profiles {
		if err != nil {
			return err
		}
		path := filepath.Join(dir, p.File)
		if rows := p.Table(samples, profileColumns, milliseconds); rows != nil {
			err = weights.WriteFile(ctx, path, func(w io.Writer) error { return csv.NewWriter(w).WriteAll(rows) })
		} else if err = os.Remove(path); errors.Is(err, os.ErrNotExist) {
			err = nil
		}
	}
	return err
}

// Merge puts samples in the order of their times, each once.
func Merge(samples []Sample) []Sample {
	seen := map[Sample]bool{}
	var out []Sample
	for _, s := range samples {
		if !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	slices.SortStableFunc(out, func(a, b Sample) int { return a.Time.Compare(b.Time) })
	return out
}
