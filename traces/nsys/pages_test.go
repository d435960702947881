package nsys

import (
	"slices"
	"testing"
)

// TestDefine: the columns of a table, as SQLite reads them in the statement that made it.
func TestDefine(t *testing.T) {
	for statement, want := range map[string]struct {
		columns []string
		key     int
	}{
		"CREATE TABLE a (start INT, end INT)": {[]string{"start", "end"}, -1},
		"CREATE TABLE StringIds (\n    -- Texts, (once)\n    id INTEGER   NOT NULL   PRIMARY KEY,  -- ID, reference.\n value TEXT)": {[]string{"id", "value"}, 0},
		"CREATE TABLE a (value TEXT, id integer primary key /* a, b */)":                                                            {[]string{"value", "id"}, 1},
		"CREATE TABLE a (id INT PRIMARY KEY, n DECIMAL(10, 2) DEFAULT (1 + 2))":                                                     {[]string{"id", "n"}, -1},
		"CREATE TABLE \"a b\" (\"end\" INTEGER, `a b` TEXT, [c] REAL, PRIMARY KEY (\"end\", [c]), CHECK (c > 0))":                   {[]string{"end", "a b", "c"}, -1},
		"CREATE TABLE a(x,y, check_sum INT, z INTEGER)":                                                                             {[]string{"x", "y", "check_sum", "z"}, -1},
	} {
		var made table
		if made.define(statement); !slices.Equal(made.columns, want.columns) || made.key != want.key {
			t.Errorf("%s: %q with the key %d, not %q with %d", statement, made.columns, made.key, want.columns, want.key)
		}
	}
}
