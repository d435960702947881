// Package samples opens the recordings of traces/samples in tests, and what other tools say of them.
package samples

import (
	"encoding/csv"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"gpt2scope/internal/checkout"
	"gpt2scope/internal/require"
	"gpt2scope/traces"
	"gpt2scope/traces/load"
)

// Path returns the path of a file in traces/samples.
func Path(name string) string {
	return checkout.Path(path.Join("traces/samples", name))
}

// Load reads a recording, such as "pytorch/bad.sqlite".
func Load(t testing.TB, name string) *traces.Trace {
	t.Helper()
	return require.Value(load.Load(Path(name)))(t)
}

// Glob returns the names of the files that match, of which there must be some.
func Glob(t testing.TB, pattern string) []string {
	t.Helper()
	root := Path("")
	paths, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
	if err != nil || len(paths) == 0 {
		t.Fatalf("there is no sample %s (%v)", pattern, err)
	}
	for i, path := range paths {
		paths[i] = filepath.ToSlash(require.Value(filepath.Rel(root, path))(t))
	}
	return paths
}

// CSV reads a table: rows of texts by the names of the columns.
func CSV(t testing.TB, name string) []map[string]string {
	t.Helper()
	text := require.Value(os.ReadFile(Path(name)))(t)
	lines, err := csv.NewReader(strings.NewReader(strings.TrimSpace(string(text)))).ReadAll()
	if err != nil || len(lines) < 2 {
		t.Fatalf("%s: %d lines, error %v", name, len(lines), err)
	}
	var rows []map[string]string
	for _, line := range lines[1:] {
		row := map[string]string{}
		for i, column := range lines[0] {
			row[column] = line[i]
		}
		rows = append(rows, row)
	}
	return rows
}
