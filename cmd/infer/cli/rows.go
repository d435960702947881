package cli

import (
	"bytes"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"gpt2scope/internal/humanize"
	"gpt2scope/internal/table"
)

// RowOptions say which rows of a table are shown, and in which order.
type RowOptions struct {
	Sort  string // a column; "" for the table's own order
	Limit int    // at most so many rows; 0 for all
}

// Register adds their flags; columns are examples for --sort, order is that of
// the table without it.
func (o *RowOptions) Register(f *pflag.FlagSet, columns, order string) {
	f.StringVar(&o.Sort, "sort", "", "sort by `COLUMN`, such as "+columns+" or another heading\nof the table (default: "+order+")")
	f.Var(Int(&o.Limit, 0, AtLeast(0)), "limit", "show the `N` rows that took the most time, or are first by\n--sort, and sum the rest of their kind (default: all)")
}

// NotShown says how many rows --limit left out, if it did.
func NotShown(w io.Writer, cut int) {
	if cut > 0 {
		fmt.Fprintf(w, "%s not shown; --limit 0 shows all\n", humanize.Count(cut, "more row is", "more rows are"))
	}
}

// SortRows is [table.Sort], whose error is a usage error.
func SortRows[R any](rows []R, columns []table.Column[R], name, format string, section func(*R) int) error {
	if err := table.Sort(rows, columns, name, format, section); err != nil {
		return Usagef("--sort %s: %w", ShellQuote(name), err)
	}
	return nil
}

// WriteCSV writes [table.CSV] to standard output.
func WriteCSV[R any](w io.Writer, columns []table.Column[R], rows []R) error {
	var b bytes.Buffer
	if err := table.CSV(&b, columns, rows); err != nil {
		return err
	}
	return WriteOutput(w, b.Bytes())
}
