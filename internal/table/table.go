// Package table writes rows as aligned text for people and as CSV, and sorts them, all from one list of columns:
//
//	columns := []table.Column[row]{
//		{Key: "name", Title: "stage", Left: true, Cell: func(r *row) table.Cell { return table.String(r.Name) }},
//		{Key: "time", Unit: "ns", Title: "time us", Cell: func(r *row) table.Cell { return table.Nanoseconds(r.Time) }},
//		{Key: "rate", Title: "GB/s", Cell: func(r *row) table.Cell { return table.Rate(r.Rate) }},
//	}
//	table.Print(w, columns, rows)
//	table.CSV(w, columns, rows)
//
// JSON is of the rows themselves, by the tags of their struct. [Lines] writes a table whose rows are put together from
// words, without columns. Text of a file cannot move the cursor or the table: see [Plain].
package table

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"gpt2scope/internal/humanize"
)

// Cell is a value of a table: as a number to sort by, as CSV, for people.
type Cell struct {
	Number float64 // NaN for none
	CSV    string
	Text   string
}

// None is the cell of a row that cannot have such a value, missing that of a row whose value is not known.
var (
	None    = Cell{math.NaN(), "", ""}
	Missing = Cell{math.NaN(), "", "-"}
)

// String is a word.
func String(s string) Cell { return Cell{math.NaN(), s, s} }

// Int is a count, blank in tables if it is 0.
func Int(n int64) Cell {
	c := Cell{float64(n), strconv.FormatInt(n, 10), ""}
	if n != 0 {
		c.Text = humanize.Thousands(n)
	}
	return c
}

// Nanoseconds is ns, in tables microseconds.
func Nanoseconds(ns int64) Cell {
	return Cell{float64(ns), strconv.FormatInt(ns, 10), strconv.FormatFloat(float64(ns)/1e3, 'f', 3, 64)}
}

// Mean is a mean or deviation in ns, in tables microseconds.
func Mean(ns float64) Cell {
	return Cell{ns, strconv.FormatFloat(ns, 'f', 1, 64), strconv.FormatFloat(ns/1e3, 'f', 3, 64)}
}

// Float has so many decimals in tables.
func Float(v float64, decimals int) Cell {
	return Cell{v, strconv.FormatFloat(v, 'g', 8, 64), strconv.FormatFloat(v, 'f', decimals, 64)}
}

// Rate has about three digits in tables.
func Rate(v float64) Cell {
	return Float(v, min(3, humanize.Decimals(v, 4)))
}

// SI is a number with a decimal prefix in tables: 1.78 M.
func SI(n int64) Cell {
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

// Column is a column of a table whose rows are R. The key names it in CSV, and without its unit for --sort, as its
// title does; one without a key is for people alone, and one without a title is not.
type Column[R any] struct {
	Key, Unit, Title string
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

// Find returns the index of the column that a user means: by its key, else by its heading, with or without its unit; -1
// if none or several could be meant.
func Find[R any](columns []Column[R], name string) int {
	name = strings.ToLower(strings.TrimSpace(name))
	is := func(c Column[R]) bool {
		return c.Key != "" && (c.Key == name || c.header() == name)
	}
	if i := slices.IndexFunc(columns, is); i >= 0 {
		return i
	}
	found := -1
	for i, c := range columns {
		heading := strings.ToLower(c.Title)
		if c.Key == "" || c.Title == "" || name != heading && name != withoutUnit(heading) {
			continue
		}
		if found >= 0 { // such as "mean", of which there are several
			return -1
		}
		found = i
	}
	return found
}

// withoutUnit takes the unit from a heading. Where a time and its share have one name, it is that of the time.
func withoutUnit(title string) string {
	for _, unit := range []string{" us", " B"} {
		if name, ok := strings.CutSuffix(title, unit); ok {
			return name
		}
	}
	return strings.TrimSpace(title)
}

// Sort sorts rows by a column within their sections: numbers from the highest, text from a to z, and what is not known
// last. name "" leaves them as they are. A refusal lists the columns that the format shows.
func Sort[R any](rows []R, columns []Column[R], name, format string, section func(*R) int) error {
	if name == "" {
		return nil
	}
	i := Find(columns, name)
	if i < 0 {
		return fmt.Errorf("it must be one of %s", strings.Join(sortNames(columns, format), ", "))
	}
	value := columns[i].Cell
	slices.SortStableFunc(rows, func(a, b R) int {
		x, y := value(&a), value(&b)
		return cmp.Or(cmp.Compare(section(&a), section(&b)), cmp.Compare(y.Number, x.Number), // NaN is the least
			strings.Compare(x.CSV, y.CSV))
	})
	return nil
}

// sortNames returns what --sort takes, in the words that the format shows: the headings of a table without their units,
// the keys of CSV. If several columns share a heading, each goes by its key.
func sortNames[R any](columns []Column[R], format string) []string {
	var names []string
	for i, c := range columns {
		heading := strings.ToLower(withoutUnit(c.Title))
		switch {
		case c.Key == "":
		case format != "csv" && heading != "" && Find(columns, heading) == i:
			names = append(names, heading)
		case format == "csv" || c.Title != "" || c.Key == "name":
			names = append(names, c.Key)
		}
	}
	return names
}

// Text is a column of words, aligned to the left.
func Text[R any](key, title string, of func(*R) string) Column[R] {
	return Column[R]{Key: key, Title: title, Left: true, Cell: func(r *R) Cell { return String(of(r)) }}
}

// Word is a column of words or written numbers for people alone, aligned to the right.
func Word[R any](title string, of func(*R) string) Column[R] {
	return Column[R]{Title: title, Cell: func(r *R) Cell { return String(of(r)) }}
}

// Count is a column of whole numbers, blank where they are 0.
func Count[R any, N int | int32 | int64](key, title string, of func(*R) N) Column[R] {
	return Column[R]{Key: key, Title: title, Cell: func(r *R) Cell { return Int(int64(of(r))) }}
}

// Time is a column of ns, which people read in us.
func Time[R any](key, title, legend string, of func(*R) int64) Column[R] {
	cell := func(r *R) Cell { return Nanoseconds(of(r)) }
	return Column[R]{Key: key, Unit: "ns", Title: title, Legend: legend, Cell: cell}
}

// cells returns the text of the columns that have a title, the titles first, and which columns are aligned to the left.
func cells[R any](columns []Column[R], rows []R) (lines [][]string, left func(column int) bool) {
	columns = slices.DeleteFunc(slices.Clone(columns), func(c Column[R]) bool { return c.Title == "" })
	lines = make([][]string, 1+len(rows))
	for _, c := range columns {
		lines[0] = append(lines[0], c.Title)
		for i := range rows {
			lines[1+i] = append(lines[1+i], c.Cell(&rows[i]).Text)
		}
	}
	return lines, func(i int) bool { return columns[i].Left }
}

// Print writes the columns that have a title for people, with a last line if one is given.
func Print[R any](w io.Writer, columns []Column[R], rows []R, last ...Cell) {
	lines, left := cells(columns, rows)
	if len(last) > 0 {
		var line []string
		for _, c := range last {
			line = append(line, c.Text)
		}
		lines = append(lines, line)
	}
	Align(w, left, lines)
}

// Markdown writes the columns that have a title as a table of Markdown.
func Markdown[R any](w io.Writer, columns []Column[R], rows []R) {
	lines, left := cells(columns, rows)
	rule := make([]string, len(lines[0]))
	for i := range rule {
		if rule[i] = "--:"; left(i) {
			rule[i] = "---"
		}
	}
	for _, line := range slices.Insert(lines, 1, rule) {
		fmt.Fprintf(w, "| %s |\n", Plain(strings.Join(line, " | ")))
	}
}

// Legend writes in one line what the headings of a table mean.
func Legend[R any](w io.Writer, columns []Column[R]) {
	var parts []string
	for _, c := range columns {
		if c.Title != "" && c.Legend != "" {
			parts = append(parts, withoutUnit(c.Title)+": "+c.Legend)
		}
	}
	fmt.Fprintf(w, "\n%s\n", strings.Join(parts, "; "))
}

// Alignment of the columns of a text table: all to the left, all to the right, or to the right but for the first one.
type Alignment int

const (
	Left Alignment = iota
	Right
	LeftFirst
)

// Lines writes rows for people: a line is of cells, separated by tabs, as is the heading.
func Lines[R any](w io.Writer, align Alignment, heading string, rows []R, line func(R) string) {
	lines := [][]string{strings.Split(heading, "\t")}
	for _, r := range rows {
		lines = append(lines, strings.Split(line(r), "\t"))
	}
	Align(w, func(i int) bool {
		return align == Left || align == LeftFirst && i == 0
	}, lines)
}

// Align writes lines of cells in columns. Two spaces stand between columns, and before a first one that is aligned to
// the right.
func Align(w io.Writer, left func(column int) bool, lines [][]string) {
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i := range line {
			line[i] = Plain(line[i])
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

// Plain keeps names of a file from moving the table or the cursor: tabs and line ends become spaces, other control
// characters, such as those of escape sequences, go.
func Plain(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t' || r == '\n' || r == '\r':
			return ' '
		case unicode.IsControl(r):
			return -1
		}
		return r
	}, s)
}

// CSV writes all columns with all digits, times in ns.
func CSV[R any](w io.Writer, columns []Column[R], rows []R) error {
	columns = slices.DeleteFunc(slices.Clone(columns), func(c Column[R]) bool { return c.Key == "" })
	c := csv.NewWriter(w)
	line := make([]string, len(columns))
	for i := range columns {
		line[i] = columns[i].header()
	}
	c.Write(line)
	for i := range rows {
		for j := range columns {
			line[j] = columns[j].Cell(&rows[i]).CSV
		}
		c.Write(line)
	}
	c.Flush()
	return c.Error()
}

// OneSection sorts all rows of a table together.
func OneSection[R any](*R) int { return 0 }
