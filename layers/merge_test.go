package layers

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpt2scope/internal/journal"
)

// partsOf writes an experiment of three depths into a directory for each part, with times that depend on the task alone.
func partsOf(t *testing.T, count int) (dirs []string) {
	t.Helper()
	e := small(t, &spoilt{})
	variants := []Variant{Depth(1, 3), Depth(2, 3), Depth(3, 3)}
	configuration := map[string]any{"model": "m", "geometry": map[string]any{"n_layer": 3}, "prompt_len": e.PromptLen, "batch": 2, "window": e.Window, "seed": e.Seed, "variants": []string{"1", "2", "3"}}
	tasks := Schedule{Phases: []string{TaskPrefill, TaskDecode}, Repeat: 7, Seed: 4}.Tasks(variants)
	for i := 1; i <= count; i++ {
		e.Shard = journal.Shard{Index: i, Count: count}
		configuration["shard"] = fmt.Sprintf("%d/%d", i, count)
		dir := t.TempDir()
		j, err := State.Open(dir, configuration)
		must(t, err)
		defer j.Close()
		for _, task := range journal.Of(e.Shard, tasks) {
			must(t, j.Add(task.Key(), rowsOf(task, []Value{{Phase: task.What, Metric: task.What + " time", Unit: "ms", Value: float64(task.Variant.Layers)}})))
		}
		r, err := e.Summarize(variants, j.Rows(), nil)
		if err != nil || !strings.Contains(r.Notes[0], fmt.Sprintf("This is part %d of %d", i, count)) {
			t.Fatalf("a part: %v, %+v", err, r)
		}
		r.Configuration = configuration
		must(t, Write(t.Context(), dir, j.Rows(), r))
		dirs = append(dirs, dir)
	}
	return dirs
}

// What is missing is said: a part, and what a part has not done.
func TestMergeMissing(t *testing.T) {
	dirs := partsOf(t, 3)
	edit(t, dirs[0], ResultFile, `"notes": [`, `"notes": ["`+NotAll(3, 4)+`", "skipped", `)
	r, _, err := Merge([]string{dirs[0], dirs[2]}, t.TempDir())
	must(t, err)
	notes := r.Notes
	for _, want := range []string{dirs[0] + ": Not all is measured: 3 of 4 measurements", "skipped", "Not all is measured: there is no part 2/3"} {
		if !slices.ContainsFunc(notes, func(n string) bool { return strings.HasPrefix(n, want) }) {
			t.Errorf("no note %q: %q", want, notes)
		}
	}
	if strings.Contains(strings.Join(notes, "\n"), "This is part") {
		t.Errorf("%q", notes)
	}
}

// edit replaces text in a file, once.
func edit(t *testing.T, dir, file, old, new string) {
	t.Helper()
	path := filepath.Join(dir, file)
	data, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(data), old) {
		t.Fatalf("%s has no %q: %v", path, old, err)
	}
	must(t, os.WriteFile(path, []byte(strings.Replace(string(data), old, new, 1)), 0o666))
}

// Results that are damaged, or do not go together, are refused in one sentence.
func TestMergeRefuses(t *testing.T) {
	for want, spoil := range map[string]func(dirs []string){
		"layers.json cannot be read":             func(d []string) { os.Remove(filepath.Join(d[0], ResultFile)) },
		"layers.json is damaged":                 func(d []string) { edit(t, d[0], ResultFile, `{`, `[`) },
		"reads version 1":                        func(d []string) { edit(t, d[0], ResultFile, `"version": 1`, `"version": 2`) },
		"it has nothing that was computed":       func(d []string) { edit(t, d[0], ResultFile, `"computed"`, `"other"`) },
		"layers.state cannot be opened: no such": func(d []string) { os.Remove(filepath.Join(d[0], State.File)) },
		"layers.state is damaged: it is empty":   func(d []string) { os.Truncate(filepath.Join(d[0], State.File), 0) },
	} {
		dirs := partsOf(t, 2)
		spoil(dirs)
		if _, _, err := Merge(dirs, t.TempDir()); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("expected %q, found %v", want, err)
		}
	}
}
