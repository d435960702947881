package cli

import (
	"io"

	"gpt2scope/internal/table"
)

// What follows stands in internal/table, and goes from here once the commands call it there
// (sed -f table.sed does it).

type (
	Cell          = table.Cell
	Column[R any] = table.Column[R]
)

const (
	ToLeft    = table.Left
	ToRight   = table.Right
	FirstLeft = table.LeftFirst
)

var (
	None      = table.None
	Missing   = table.Missing
	TextCell  = table.String
	IntCell   = table.Int
	NsCell    = table.Nanoseconds
	MeanCell  = table.Mean
	FloatCell = table.Float
	RateCell  = table.Rate
	SiCell    = table.SI
	When      = table.When
	Known     = table.Known
	PlainText = table.Plain
	LayOut    = table.Align
)

func OneSection[R any](*R) int { return 0 }

func FindColumn[R any](columns []Column[R], name string) int { return table.Find(columns, name) }

func PrintCells[R any](w io.Writer, columns []Column[R], rows []R, last []Cell) {
	table.Print(w, columns, rows, last...)
}

func PrintLegend[R any](w io.Writer, columns []Column[R]) { table.Legend(w, columns) }

func PrintText[R any](w io.Writer, align table.Alignment, heading string, rows []R, line func(R) string) {
	table.Lines(w, align, heading, rows, line)
}
