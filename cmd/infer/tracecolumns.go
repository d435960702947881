package main

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

// cell is a value of a table: as a number to sort by, as CSV, for people.
type cell struct {
	number float64 // NaN for none
	csv    string
	text   string
}

// none is the cell of a row that cannot have such a value, missing that of a row whose value
// is not known.
var (
	none    = cell{math.NaN(), "", ""}
	missing = cell{math.NaN(), "", "-"}
)

func textCell(s string) cell { return cell{math.NaN(), s, s} }

// intCell is a count, blank in tables if it is 0.
func intCell(n int64) cell {
	c := cell{float64(n), strconv.FormatInt(n, 10), ""}
	if n != 0 {
		c.text = humanize.Thousands(n)
	}
	return c
}

// nsCell is ns, in tables microseconds.
func nsCell(ns int64) cell {
	return cell{float64(ns), strconv.FormatInt(ns, 10), strconv.FormatFloat(float64(ns)/1e3, 'f', 3, 64)}
}

// meanCell is a mean or deviation in ns, in tables microseconds.
func meanCell(ns float64) cell {
	return cell{ns, strconv.FormatFloat(ns, 'f', 1, 64), strconv.FormatFloat(ns/1e3, 'f', 3, 64)}
}

// floatCell has so many decimals in tables.
func floatCell(v float64, decimals int) cell {
	return cell{v, strconv.FormatFloat(v, 'g', 8, 64), strconv.FormatFloat(v, 'f', decimals, 64)}
}

// rateCell has about three digits in tables.
func rateCell(v float64) cell {
	decimals := 3
	for limit := 10.0; decimals > 0 && v >= limit; limit *= 10 {
		decimals--
	}
	return floatCell(v, decimals)
}

// siCell is a number with a decimal prefix in tables: 1.78 M.
func siCell(n int64) cell {
	c := cell{float64(n), strconv.FormatInt(n, 10), ""}
	v, prefix := float64(n), ""
	for _, next := range []string{"k", "M", "G", "T", "P", "E"} {
		if math.Abs(v) < 999.5 {
			break
		}
		v, prefix = v/1000, next
	}
	c.text = strings.TrimSpace(strconv.FormatFloat(v, 'g', 3, 64) + " " + prefix)
	return c
}

// when returns a cell if its value applies to the row, else none.
func when(applies bool, c cell) cell {
	if !applies {
		return none
	}
	return c
}

// known returns a cell if its value is known, else missing.
func known(is bool, c cell) cell {
	if !is {
		return missing
	}
	return c
}

// column is a column of a table whose rows are R. The key names it in CSV, and
// without its unit for --sort, as its title does; one without a key is for people
// alone, and one without a title is not.
type column[R any] struct {
	key, unit, title string
	old              string // a key or heading of earlier versions, for --sort
	legend           string // what the title means, if that is not plain
	cell             func(*R) cell
	left             bool // aligned to the left
}

func (c column[R]) header() string {
	if c.unit == "" {
		return c.key
	}
	return c.key + "_" + c.unit
}

// findColumn returns the index of the column that a user means: by its key, else by
// its heading, with or without its unit; -1 if none or several could be meant.
func findColumn[R any](columns []column[R], name string) int {
	name = strings.ToLower(strings.TrimSpace(name))
	is := func(c column[R]) bool {
		return c.key != "" && (c.key == name || c.header() == name || c.old == name && name != "")
	}
	if i := slices.IndexFunc(columns, is); i >= 0 {
		return i
	}
	for _, heading := range []func(string) string{strings.TrimSpace, withoutUnit} {
		found := -1
		for i, c := range columns {
			if c.key == "" || c.title == "" || strings.ToLower(heading(c.title)) != name {
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

// rowOptions say which rows of a table are shown, and in which order.
type rowOptions struct {
	sort  string // a column; "" for the table's own order
	limit int    // at most so many rows; 0 for all
}

// register adds the flags of rowOptions; columns are examples for --sort, order is that of
// the table without it.
func (o *rowOptions) register(f *pflag.FlagSet, columns, order string) {
	f.StringVar(&o.sort, "sort", "", "sort by `COLUMN`, such as "+columns+" or another heading\nof the table (default: "+order+")")
	f.IntVar(&o.limit, "limit", 0, "show the `N` rows that took the most time, or are first by\n--sort, and sum the rest of their kind (default: all)")
	f.IntVar(&o.limit, "top", 0, "the same as --limit")
	f.Lookup("top").Hidden = true
}

// notShown says how many rows --limit left out, if it did.
func notShown(w io.Writer, cut int) {
	if cut > 0 {
		fmt.Fprintf(w, "%s not shown; --limit 0 shows all\n", humanize.Count(cut, "more row is", "more rows are"))
	}
}

// writeRows writes a table for people: rows in the order that --sort says, of which --limit leaves the first, or those of the
// longest times if there is no --sort.
func writeRows[R any](w io.Writer, columns []column[R], rows []R, o rowOptions, time func(R) float64) error {
	rows = slices.Clone(rows)
	if err := sortRows(rows, columns, o.sort, "text", oneSection); err != nil {
		return err
	}
	cut := 0
	if o.limit > 0 && len(rows) > o.limit {
		cut = len(rows) - o.limit
		if o.sort == "" {
			slices.SortStableFunc(rows, func(a, b R) int { return cmp.Compare(time(b), time(a)) })
		}
		rows = rows[:o.limit]
	}
	printCells(w, columns, rows, nil)
	notShown(w, cut)
	printLegend(w, columns)
	return nil
}

func (o *rowOptions) check() error {
	if o.limit < 0 {
		return usagef("--limit %d: it must be at least 1, or 0 for all", o.limit)
	}
	return nil
}

// sortRows sorts rows by a column within their sections: numbers from the highest,
// text from a to z, and what is not known last. name "" leaves them as they are. A
// refusal lists the columns that the format shows.
func sortRows[R any](rows []R, columns []column[R], name, format string, section func(*R) int) error {
	if name == "" {
		return nil
	}
	i := findColumn(columns, name)
	if i < 0 {
		return usagef("--sort %s: it must be one of %s", shellQuote(name), strings.Join(sortNames(columns, format), ", "))
	}
	value := columns[i].cell
	slices.SortStableFunc(rows, func(a, b R) int {
		x, y := value(&a), value(&b)
		return cmp.Or(cmp.Compare(section(&a), section(&b)), cmp.Compare(y.number, x.number), // NaN is the least
			strings.Compare(x.csv, y.csv))
	})
	return nil
}

// sortNames returns what --sort takes, in the words that the format shows: the headings of a
// table without their units, the keys of CSV. If several columns share a heading, each goes by
// its key.
func sortNames[R any](columns []column[R], format string) []string {
	var names []string
	for i, c := range columns {
		heading := strings.ToLower(withoutUnit(c.title))
		switch {
		case c.key == "":
		case format != "csv" && heading != "" && findColumn(columns, heading) == i:
			names = append(names, heading)
		case format == "csv" || c.title != "" || c.key == "name":
			names = append(names, c.key)
		}
	}
	return names
}

// printCells writes the columns that have a title for people, with a last line if there
// is one.
func printCells[R any](w io.Writer, columns []column[R], rows []R, last []cell) {
	columns = slices.DeleteFunc(slices.Clone(columns), func(c column[R]) bool { return c.title == "" })
	lines := make([][]string, 1+len(rows))
	for _, c := range columns {
		lines[0] = append(lines[0], c.title)
		for i := range rows {
			lines[1+i] = append(lines[1+i], c.cell(&rows[i]).text)
		}
	}
	if last != nil {
		var line []string
		for _, c := range last {
			line = append(line, c.text)
		}
		lines = append(lines, line)
	}
	layOut(w, func(i int) bool { return columns[i].left }, lines)
}

// printLegend writes in one line what the headings of a table mean.
func printLegend[R any](w io.Writer, columns []column[R]) {
	var parts []string
	for _, c := range columns {
		if c.title != "" && c.legend != "" {
			parts = append(parts, withoutUnit(c.title)+": "+c.legend)
		}
	}
	fmt.Fprintf(w, "\n%s\n", strings.Join(parts, "; "))
}

// The columns of a text table are aligned to the left, to the right, or to the right but
// for the last or the first one.
type alignment int

const (
	toLeft alignment = iota
	toRight
	nameLast
	firstLeft
)

// printText writes rows for people: a line is of cells, separated by tabs, as is the
// heading.
func printText[R any](w io.Writer, align alignment, heading string, rows []R, line func(R) string) {
	lines := [][]string{strings.Split(heading, "\t")}
	for _, r := range rows {
		lines = append(lines, strings.Split(line(r), "\t"))
	}
	layOut(w, func(i int) bool {
		return align == toLeft || align == nameLast && i == len(lines[0])-1 || align == firstLeft && i == 0
	}, lines)
}

// layOut writes lines of cells in columns. Two spaces stand between columns, and before a
// first one that is aligned to the right.
func layOut(w io.Writer, left func(column int) bool, lines [][]string) {
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i := range line {
			line[i] = plainText(line[i])
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

// plainText keeps names of a file from moving the table: tabs and line ends become
// spaces, other control characters go.
func plainText(s string) string {
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

// writeCSV writes all columns with all digits, times in ns.
func writeCSV[R any](w io.Writer, columns []column[R], rows []R) error {
	columns = slices.DeleteFunc(slices.Clone(columns), func(c column[R]) bool { return c.key == "" })
	var b bytes.Buffer
	c := csv.NewWriter(&b)
	line := make([]string, len(columns))
	for i := range columns {
		line[i] = columns[i].header()
	}
	c.Write(line)
	for i := range rows {
		for j := range columns {
			line[j] = columns[j].cell(&rows[i]).csv
		}
		c.Write(line)
	}
	c.Flush()
	if err := c.Error(); err != nil {
		return err
	}
	return writeOutput(w, b.Bytes())
}
