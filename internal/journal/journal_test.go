package journal

import (
	"slices"
	"testing"
)

// A series goes on after a task of any number of rows: what Add writes, Open reads.
func TestManyRows(t *testing.T) {
	dir := t.TempDir()
	open := func() *Journal[int] {
		j, err := Open(dir, "state", "a test", map[string]any{"n": 1}, func(int) bool { return true })
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	rows := make([]int, 400_000) // of 7 digits and a comma: more than 3 MiB
	for i := range rows {
		rows[i] = 1_000_000 + i
	}
	j := open()
	if err := j.Add("many", rows); err != nil {
		t.Fatal(err)
	}
	if err := j.Add("few", rows[:1]); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = open()
	defer j.Close()
	if !j.Done("many") || !j.Done("few") || !slices.Equal(j.Rows(), append(rows, rows[0])) {
		t.Errorf("%d rows are read again, of %d", len(j.Rows()), len(rows)+1)
	}
}
