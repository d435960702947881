package table

import (
	"bytes"
	"testing"

	"gpt2scope/internal/require"
)

type row struct {
	name string
	time int64
	n    int
}

var columns = []Column[row]{
	{Key: "name", Title: "stage", Left: true, Cell: func(r *row) Cell { return String(r.name) }},
	{Key: "time", Unit: "ns", Title: "time us", Cell: func(r *row) Cell { return Nanoseconds(r.time) }},
	Count("calls", "calls", func(r *row) int { return r.n }),
	{Key: "rate", Title: "GB/s", Legend: "bytes over time", Cell: func(r *row) Cell { return When(r.n > 1, Known(r.time > 0, Rate(1234.5))) }},
	{Key: "hidden", Cell: func(r *row) Cell { return SI(1780000) }},
}

// A table is aligned, sorted by what its heading says, and CSV has all columns with all digits.
func TestTable(t *testing.T) {
	rows := []row{{"a\tb\x1b[31m\u009b", 1500, 12345}, {"c", 20, 1}, {"d", 0, 2}}
	require.NoError(t, Sort(rows, columns, "TIME", "text", OneSection))
	if err := Sort(rows, columns, "zebra", "text", OneSection); err == nil || err.Error() != "it must be one of stage, time, calls, gb/s" {
		t.Errorf("a column that is not there: %v", err)
	}
	var text, csv bytes.Buffer
	Print(&text, columns, rows, String("all"), Nanoseconds(1520), None, None)
	Legend(&text, columns)
	want := `stage    time us   calls  GB/s
a b[31m    1.500  12,345  1234
c          0.020       1
d          0.000       2     -
all        1.520

GB/s: bytes over time
`
	if text.String() != want {
		t.Errorf("the table is\n%s\nwant\n%s", &text, want)
	}
	if err := CSV(&csv, columns, rows[1:]); err != nil || csv.String() != "name,time_ns,calls,rate,hidden\nc,20,1,,1780000\nd,0,2,,1780000\n" {
		t.Errorf("CSV: %v\n%s", err, &csv)
	}
	text.Reset()
	Lines(&text, LeftFirst, "name\tn", []string{"x\t10", "longer\t9"}, func(s string) string { return s })
	if text.String() != "name     n\nx       10\nlonger   9\n" {
		t.Errorf("lines:\n%s", &text)
	}
}
