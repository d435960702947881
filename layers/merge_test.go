package layers

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"gpt2scope/gpt2"
	"gpt2scope/internal/journal"
)

// partsOf writes an experiment of three depths and a predicted one into a directory for each part, with times that
// depend on the task alone, and returns the directories and the result of one run.
func partsOf(t *testing.T, count int) (dirs []string, whole *Result) {
	t.Helper()
	e := small(t, &spoilt{})
	var variants []Variant
	var labels []string
	for n := 1; n <= 3; n++ {
		variants = append(variants, Depth(n, 3))
		labels = append(labels, fmt.Sprint(n))
	}
	verified := Depth(6, 3)
	verified.Kind = KindVerify
	geometry := map[string]any{"n_layer": 3}
	configuration := map[string]any{"model": "m", "geometry": geometry, "prompt_len": e.PromptLen, "batch": 2, "window": e.Window, "seed": e.Seed, "variants": labels}
	schedule := Schedule{Phases: []string{TaskPrefill, TaskDecode}, Repeat: 7, Seed: 4}
	tasks := append(schedule.Tasks(variants), schedule.Tasks([]Variant{verified})...)
	e.Floor = func(p *gpt2.Plan, past int) time.Duration { return time.Millisecond }
	values := func(task Task) []Value {
		return []Value{{Phase: task.What, Metric: task.What + " time", Unit: "ms", Value: 1 + 2*float64(task.Variant.Layers) + 0.01*float64(task.Repeat%5)}}
	}
	measured := func(shard journal.Shard, configuration map[string]any) (string, *Result) {
		dir := t.TempDir()
		j, err := State.Open(dir, configuration)
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		var done []journal.Entry[Row]
		for _, task := range journal.Of(shard, tasks) {
			done = append(done, journal.Entry[Row]{Task: task.Key(), Rows: rowsOf(task, values(task))})
		}
		if err := j.AddAll(done); err != nil {
			t.Fatal(err)
		}
		e.Shard = shard
		r, err := e.Summarize(variants, j.Rows(), []int{6})
		if err != nil {
			t.Fatal(err)
		}
		r.Configuration = configuration
		if err := Write(context.Background(), dir, j.Rows(), r); err != nil {
			t.Fatal(err)
		}
		return dir, r
	}
	_, whole = measured(journal.Shard{}, configuration)
	for i := 1; i <= count; i++ {
		configuration["shard"] = fmt.Sprintf("%d/%d", i, count)
		dir, r := measured(journal.Shard{Index: i, Count: count}, configuration)
		if !strings.Contains(r.Notes[0], fmt.Sprintf("This is part %d of %d", i, count)) {
			t.Errorf("notes of a part: %q", r.Notes)
		}
		dirs = append(dirs, dir)
	}
	return dirs, whole
}

// Parts put together have the variants, fits, predictions and notes of one run, in any order of the parts, and with a
// part given twice.
func TestMerge(t *testing.T) {
	dirs, whole := partsOf(t, 3)
	for _, order := range [][]string{dirs, {dirs[2], dirs[0], dirs[1], dirs[0]}} {
		dir := filepath.Join(t.TempDir(), "all")
		if _, _, err := Merge(order, dir); err != nil {
			t.Fatal(err)
		}
		r, rows, err := Merge(order, dir) // saved again, the state file stays
		if err != nil {
			t.Fatal(err)
		}
		for what, pair := range map[string][2]any{
			"variants": {r.Variants, whole.Variants}, "predictions": {r.Predictions, whole.Predictions}, "predicted depths": {r.Predicted, whole.Predicted}, "notes": {r.Notes, whole.Notes},
		} {
			if !reflect.DeepEqual(pair[0], pair[1]) {
				t.Errorf("%s are %+v\nof one run %+v", what, pair[0], pair[1])
			}
		}
		if len(r.Fits) != 2 || len(r.Predictions) != 2 || len(r.Variants[0].Metrics) < 10 {
			t.Errorf("%+v", r)
		}
		for i, f := range r.Fits {
			near(t, "A", f.A, whole.Fits[i].A, 1e-9)
			near(t, "B", f.B, whole.Fits[i].B, 1e-9)
		}
		if !slices.IsSortedFunc(rows, func(a, b Row) int { return a.Time.Compare(b.Time) }) {
			t.Error("rows are not in the order of their times")
		}

		j, err := State.Open(dir, r.Configuration) // as of one run
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(j.Rows(), rows) || r.Configuration["shard"] != nil {
			t.Errorf("%d rows were saved of %d", len(j.Rows()), len(rows))
		}
		j.Close()
	}
}

// What is missing is said: a part, and what a part has not done.
func TestMergeMissing(t *testing.T) {
	dirs, _ := partsOf(t, 3)
	edit(t, dirs[0], ResultFile, `"notes": [`, `"notes": ["`+NotAll(3, 4)+`", "skipped", `)
	r, _, err := Merge([]string{dirs[0], dirs[2]}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
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
	if err := os.WriteFile(path, []byte(strings.Replace(string(data), old, new, 1)), 0o666); err != nil {
		t.Fatal(err)
	}
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
		dirs, _ := partsOf(t, 2)
		spoil(dirs)
		if _, _, err := Merge(dirs, t.TempDir()); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("expected %q, found %v", want, err)
		}
	}
}
