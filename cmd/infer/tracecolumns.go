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
	"text/tabwriter"

	"gpt2scope/internal/humanize"
)

// cell is a value of a table: as a number to sort by, as CSV, for people.
type cell struct {
	number float64 // NaN where there is none
	csv    string
	text   string
}

// none is where a row has no such value by its nature, missing where it should
// have and is not known.
var (
	none    = cell{math.NaN(), "", ""}
	missing = cell{math.NaN(), "", "-"}
)

func textCell(s string) cell { return cell{math.NaN(), s, s} }

// intCell is a count, blank in tables where it is 0.
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

// when is a cell where its value applies, else blank.
func when(applies bool, c cell) cell {
	if !applies {
		return none
	}
	return c
}

// known is a cell where its value is known, else a dash.
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
	old              string // a key of earlier versions, for --sort
	cell             func(*R) cell
	left             bool // last, and aligned to the left
}

func (c column[R]) header() string {
	if c.unit == "" {
		return c.key
	}
	return c.key + "_" + c.unit
}

// findColumn returns the index of the column that a user means: by its key, else by
// its heading, with or without its unit; -1 where none or several could be meant.
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

// sortRows sorts rows by a column within their sections: numbers from the highest,
// text from a to z, and what is not known last. name "" leaves them as they are. A
// refusal lists the columns that the format shows.
func sortRows[R any](rows []R, columns []column[R], name, format string, section func(*R) int) error {
	if name == "" {
		return nil
	}
	i := findColumn(columns, name)
	if i < 0 {
		var names []string
		for _, c := range columns {
			if c.key != "" && (c.title != "" || c.key == "name" || format == "csv") {
				names = append(names, c.key)
			}
		}
		return usagef("--sort %s: it must be one of %s", shellQuote(name), strings.Join(names, ", "))
	}
	value := columns[i].cell
	slices.SortStableFunc(rows, func(a, b R) int {
		x, y := value(&a), value(&b)
		return cmp.Or(cmp.Compare(section(&a), section(&b)), cmp.Compare(y.number, x.number), // NaN is the least
			strings.Compare(x.csv, y.csv))
	})
	return nil
}

// printCells writes the columns that have a title for people.
func printCells[R any](w io.Writer, columns []column[R], rows []R, last []cell) {
	columns = slices.DeleteFunc(slices.Clone(columns), func(c column[R]) bool { return c.title == "" })
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	var line []string
	end := func() {
		fmt.Fprintln(tw, strings.TrimRight(strings.Join(line, ""), " "))
		line = line[:0]
	}
	put := func(c column[R], text string) {
		if c.left {
			line = append(line, "  "+text)
		} else {
			line = append(line, text+"\t")
		}
	}
	for _, c := range columns {
		put(c, c.title)
	}
	end()
	for i := range rows {
		for _, c := range columns {
			put(c, plainText(c.cell(&rows[i]).text))
		}
		end()
	}
	if last != nil {
		for i, c := range columns {
			put(c, last[i].text)
		}
		end()
	}
	tw.Flush()
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
