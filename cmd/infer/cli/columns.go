package cli

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"gpt2scope/internal/humanize"
)

// Cell is a value of a table: as a number to sort by, as CSV, for people.
type Cell struct {
	Number float64 // NaN for none
	Csv    string
	Text   string
}

// None is the cell of a row that cannot have such a value, missing that of a row whose value
// is not known.
var (
	None    = Cell{math.NaN(), "", ""}
	Missing = Cell{math.NaN(), "", "-"}
)

func TextCell(s string) Cell { return Cell{math.NaN(), s, s} }

// IntCell is a count, blank in tables if it is 0.
func IntCell(n int64) Cell {
	c := Cell{float64(n), strconv.FormatInt(n, 10), ""}
	if n != 0 {
		c.Text = humanize.Thousands(n)
	}
	return c
}

// NsCell is ns, in tables microseconds.
func NsCell(ns int64) Cell {
	return Cell{float64(ns), strconv.FormatInt(ns, 10), strconv.FormatFloat(float64(ns)/1e3, 'f', 3, 64)}
}

// MeanCell is a mean or deviation in ns, in tables microseconds.
func MeanCell(ns float64) Cell {
	return Cell{ns, strconv.FormatFloat(ns, 'f', 1, 64), strconv.FormatFloat(ns/1e3, 'f', 3, 64)}
}

// FloatCell has so many decimals in tables.
func FloatCell(v float64, decimals int) Cell {
	return Cell{v, strconv.FormatFloat(v, 'g', 8, 64), strconv.FormatFloat(v, 'f', decimals, 64)}
}

// RateCell has about three digits in tables.
func RateCell(v float64) Cell {
	decimals := 3
	for limit := 10.0; decimals > 0 && v >= limit; limit *= 10 {
		decimals--
	}
	return FloatCell(v, decimals)
}

// SiCell is a number with a decimal prefix in tables: 1.78 M.
func SiCell(n int64) Cell {
	c := Cell{float64(n), strconv.FormatInt(n, 10), ""}
	v, prefix := float64(n), ""
	for _, next := range []string{"k", "M", "G", "T", "P", "E"} {
		if math.Abs(v) < 999.5 {
			break
		}
		v, prefix = v/1000, next
	}
	c.Text = strings.TrimSpace(strconv.FormatFloat(v, 'g', 3, 64) + " " + prefix)
	return c
}

// When returns a cell if its value applies to the row, else none.
func When(applies bool, c Cell) Cell {
	if !applies {
		return None
	}
	return c
}

// Known returns a cell if its value is known, else missing.
func Known(is bool, c Cell) Cell {
	if !is {
		return Missing
	}
	return c
}

// Column is a column of a table whose rows are R. The key names it in CSV, and
// without its unit for --sort, as its title does; one without a key is for people
// alone, and one without a title is not.
type Column[R any] struct {
	Key, Unit, Title string
	Old              string // a key or heading of earlier versions, for --sort
	Legend           string // what the title means, if that is not plain
	Cell             func(*R) Cell
	Left             bool // aligned to the left
}

func (c Column[R]) header() string {
	if c.Unit == "" {
		return c.Key
	}
	return c.Key + "_" + c.Unit
}

// FindColumn returns the index of the column that a user means: by its key, else by
// its heading, with or without its unit; -1 if none or several could be meant.
func FindColumn[R any](columns []Column[R], name string) int {
	name = strings.ToLower(strings.TrimSpace(name))
	is := func(c Column[R]) bool {
		return c.Key != "" && (c.Key == name || c.header() == name || c.Old == name && name != "")
	}
	if i := slices.IndexFunc(columns, is); i >= 0 {
		return i
	}
	for _, heading := range []func(string) string{strings.TrimSpace, withoutUnit} {
		found := -1
		for i, c := range columns {
			if c.Key == "" || c.Title == "" || strings.ToLower(heading(c.Title)) != name {
				continue
			}
			if found >= 0 { // such as "mean", of which there are several
				return -1
			}
			found = i
		}
		if found >= 0 {
			return found
		}
	}
	return -1
}

// withoutUnit takes the unit from a heading. Where a time and its share have one name,
// it is that of the time.
func withoutUnit(title string) string {
	for _, unit := range []string{" us", " B"} {
		if name, ok := strings.CutSuffix(title, unit); ok {
			return name
		}
	}
	return strings.TrimSpace(title)
}

// RowOptions say which rows of a table are shown, and in which order.
type RowOptions struct {
	Sort  string // a column; "" for the table's own order
	Limit int    // at most so many rows; 0 for all
}

// Register adds the flags of rowOptions; columns are examples for --sort, order is that of
// the table without it.
func (o *RowOptions) Register(f *pflag.FlagSet, columns, order string) {
	f.StringVar(&o.Sort, "sort", "", "sort by `COLUMN`, such as "+columns+" or another heading\nof the table (default: "+order+")")
	f.IntVar(&o.Limit, "limit", 0, "show the `N` rows that took the most time, or are first by\n--sort, and sum the rest of their kind (default: all)")
	f.IntVar(&o.Limit, "top", 0, "the same as --limit")
	f.Lookup("top").Hidden = true
}

// NotShown says how many rows --limit left out, if it did.
func NotShown(w io.Writer, cut int) {
	if cut > 0 {
		fmt.Fprintf(w, "%s not shown; --limit 0 shows all\n", humanize.Count(cut, "more row is", "more rows are"))
	}
}

// WriteRows writes a table for people: rows in the order that --sort says, of which --limit leaves the first, or those of the
// longest times if there is no --sort.
func WriteRows[R any](w io.Writer, columns []Column[R], rows []R, o RowOptions, time func(R) float64) error {
	rows = slices.Clone(rows)
	if err := SortRows(rows, columns, o.Sort, "text", OneSection); err != nil {
		return err
	}
	cut := 0
	if o.Limit > 0 && len(rows) > o.Limit {
		cut = len(rows) - o.Limit
		if o.Sort == "" {
			slices.SortStableFunc(rows, func(a, b R) int { return cmp.Compare(time(b), time(a)) })
		}
		rows = rows[:o.Limit]
	}
	PrintCells(w, columns, rows, nil)
	NotShown(w, cut)
	PrintLegend(w, columns)
	return nil
}

func (o *RowOptions) Check() error {
	if o.Limit < 0 {
		return Usagef("--limit %d: it must be at least 1, or 0 for all", o.Limit)
	}
	return nil
}

// SortRows sorts rows by a column within their sections: numbers from the highest,
// text from a to z, and what is not known last. name "" leaves them as they are. A
// refusal lists the columns that the format shows.
func SortRows[R any](rows []R, columns []Column[R], name, format string, section func(*R) int) error {
	if name == "" {
		return nil
	}
	i := FindColumn(columns, name)
	if i < 0 {
		return Usagef("--sort %s: it must be one of %s", ShellQuote(name), strings.Join(sortNames(columns, format), ", "))
	}
	value := columns[i].Cell
	slices.SortStableFunc(rows, func(a, b R) int {
		x, y := value(&a), value(&b)
		return cmp.Or(cmp.Compare(section(&a), section(&b)), cmp.Compare(y.Number, x.Number), // NaN is the least
			strings.Compare(x.Csv, y.Csv))
	})
	return nil
}

// sortNames returns what --sort takes, in the words that the format shows: the headings of a
// table without their units, the keys of CSV. If several columns share a heading, each goes by
// its key.
func sortNames[R any](columns []Column[R], format string) []string {
	var names []string
	for i, c := range columns {
		heading := strings.ToLower(withoutUnit(c.Title))
		switch {
		case c.Key == "":
		case format != "csv" && heading != "" && FindColumn(columns, heading) == i:
			names = append(names, heading)
		case format == "csv" || c.Title != "" || c.Key == "name":
			names = append(names, c.Key)
		}
	}
	return names
}

// PrintCells writes the columns that have a title for people, with a last line if there
// is one.
func PrintCells[R any](w io.Writer, columns []Column[R], rows []R, last []Cell) {
	columns = slices.DeleteFunc(slices.Clone(columns), func(c Column[R]) bool { return c.Title == "" })
	lines := make([][]string, 1+len(rows))
	for _, c := range columns {
		lines[0] = append(lines[0], c.Title)
		for i := range rows {
			lines[1+i] = append(lines[1+i], c.Cell(&rows[i]).Text)
		}
	}
	if last != nil {
		var line []string
		for _, c := range last {
			line = append(line, c.Text)
		}
		lines = append(lines, line)
	}
	LayOut(w, func(i int) bool { return columns[i].Left }, lines)
}

// PrintLegend writes in one line what the headings of a table mean.
func PrintLegend[R any](w io.Writer, columns []Column[R]) {
	var parts []string
	for _, c := range columns {
		if c.Title != "" && c.Legend != "" {
			parts = append(parts, withoutUnit(c.Title)+": "+c.Legend)
		}
	}
	fmt.Fprintf(w, "\n%s\n", strings.Join(parts, "; "))
}

// The columns of a text table are aligned to the left, to the right, or to the right but
// for the last or the first one.
type alignment int

const (
	ToLeft alignment = iota
	ToRight
	nameLast
	FirstLeft
)

// PrintText writes rows for people: a line is of cells, separated by tabs, as is the
// heading.
func PrintText[R any](w io.Writer, align alignment, heading string, rows []R, line func(R) string) {
	lines := [][]string{strings.Split(heading, "\t")}
	for _, r := range rows {
		lines = append(lines, strings.Split(line(r), "\t"))
	}
	LayOut(w, func(i int) bool {
		return align == ToLeft || align == nameLast && i == len(lines[0])-1 || align == FirstLeft && i == 0
	}, lines)
}

// LayOut writes lines of cells in columns. Two spaces stand between columns, and before a
// first one that is aligned to the right.
func LayOut(w io.Writer, left func(column int) bool, lines [][]string) {
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i := range line {
			line[i] = PlainText(line[i])
			widths[i] = max(widths[i], utf8.RuneCountInString(line[i]))
		}
	}
	for _, line := range lines {
		var b strings.Builder
		for i, text := range line {
			if i > 0 || !left(i) {
				b.WriteString("  ")
			}
			padding := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text))
			if left(i) {
				b.WriteString(text + padding)
			} else {
				b.WriteString(padding + text)
			}
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}

// PlainText keeps names of a file from moving the table: tabs and line ends become
// spaces, other control characters go.
func PlainText(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t' || r == '\n' || r == '\r':
			return ' '
		case r < ' ' || r == 0x7f:
			return -1
		}
		return r
	}, s)
}

// WriteCSV writes all columns with all digits, times in ns.
func WriteCSV[R any](w io.Writer, columns []Column[R], rows []R) error {
	columns = slices.DeleteFunc(slices.Clone(columns), func(c Column[R]) bool { return c.Key == "" })
	var b bytes.Buffer
	c := csv.NewWriter(&b)
	line := make([]string, len(columns))
	for i := range columns {
		line[i] = columns[i].header()
	}
	c.Write(line)
	for i := range rows {
		for j := range columns {
			line[j] = columns[j].Cell(&rows[i]).Csv
		}
		c.Write(line)
	}
	c.Flush()
	if err := c.Error(); err != nil {
		return err
	}
	return WriteOutput(w, b.Bytes())
}

// OneSection sorts all rows of a table together.
func OneSection[R any](*R) int { return 0 }
