package journal

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gpt2scope/internal/require"
)

var must = require.NoError

// row is a measurement.
type row struct {
	Value int       `json:"value"`
	Time  time.Time `json:"time"`
}

var format = Format[row]{File: "test.state", Name: "a test", Time: func(r row) time.Time { return r.Time }}

var configuration = map[string]any{"model": "m", "repeat": 3, "phases": []string{"decode"}}

// open opens a journal for the time of a test.
func open(t *testing.T, dir string, configuration map[string]any) *Journal[row] {
	t.Helper()
	j := require.Value(format.Open(dir, configuration))(t)
	t.Cleanup(func() { j.Close() })
	return j
}

// filled returns a directory with a state of two tasks, and its lines.
func filled(t *testing.T) (dir string, lines []string) {
	t.Helper()
	dir = t.TempDir()
	j := open(t, dir, configuration)
	for i := range 2 {
		must(t, j.Add(fmt.Sprint("task ", i), []row{{Value: i + 1}}))
	}
	j.Close()
	data := require.Value(os.ReadFile(filepath.Join(dir, format.File)))(t)
	return dir, strings.SplitAfter(string(data), "\n")[:3]
}

// An experiment goes on after the last whole line, also if the last line was cut off at any byte.
func TestGoesOn(t *testing.T) {
	dir, lines := filled(t)
	whole, path := strings.Join(lines, ""), filepath.Join(dir, format.File)
	for cut := range len(whole) + 1 {
		must(t, os.WriteFile(path, []byte(whole[:cut]), 0o666))
		j, err := format.Open(dir, configuration)
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		n := max(0, strings.Count(whole[:cut], "\n")-1)
		if len(j.Rows()) != n || j.Done("task 0") != (n > 0) || j.Done("task 1") != (n > 1) {
			t.Fatalf("cut at %d: %+v", cut, j.Rows())
		}
		must(t, j.Add("task 2", nil))
		j.Close()
		if j, err = format.Open(dir, configuration); err != nil || !j.Done("task 2") || len(j.Rows()) != n {
			t.Fatalf("cut at %d, after another task: %v", cut, err)
		}
		j.Close()
	}
}

// What is damaged or of another experiment is refused in one sentence, and left as it is.
func TestRefuses(t *testing.T) {
	dir, lines := filled(t)
	path := filepath.Join(dir, format.File)
	for content, want := range map[string]string{
		"hello\n": "damaged", "{}\n": "damaged", "\n": "damaged",
		lines[0] + "x\n" + lines[2]:                                  "line 2 is not that of a task",
		lines[0] + "{}\n" + lines[2]:                                 "line 2 is not that of a task",
		lines[0] + `{"task":"a","rows":[{}]}`:                        "", // cut off
		strings.Replace(lines[0], `"version":1`, `"version":2`, 1):   "version 2",
		strings.Replace(lines[0], `"repeat":3`, `"repeat":4`, 1):     "expected repeat 3, found 4",
		strings.Replace(lines[0], `"repeat":3`, `"past":3`, 1):       "expected past absent, found 3",
		strings.Replace(lines[0], `["decode"]`, `["decode","x"]`, 1): `expected phases ["decode"], found ["decode","x"]`,
		string(bytes.Repeat([]byte{0}, 100)) + "\n" + lines[1]:       "damaged",
	} {
		must(t, os.WriteFile(path, []byte(content), 0o666))
		j, err := format.Open(dir, configuration)
		if err == nil {
			j.Close()
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%.60q: %v, expected %q", content, err, want)
		}
		if now, err := os.ReadFile(path); want != "" && (err != nil || string(now) != content) {
			t.Errorf("%.60q was changed", content)
		}
	}
}

func TestDirectory(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, nil, 0o666))
	for _, d := range []string{file, filepath.Join(file, "below"), "/proc/none"} {
		if _, err := format.Open(d, configuration); err == nil || !strings.Contains(err.Error(), d) {
			t.Errorf("%s: %v", d, err)
		}
	}
	open(t, dir, configuration)
	if _, err := format.Open(dir, configuration); err == nil || !strings.Contains(err.Error(), "another experiment is writing") {
		t.Errorf("two experiments write to a directory: %v", err)
	}
}

// parts are directories of the parts of an experiment of six tasks, which were done in the order of their numbers.
func parts(t *testing.T, count int) (dirs []string) {
	t.Helper()
	for i := 1; i <= count; i++ {
		shard := Shard{Index: i, Count: count}
		c := map[string]any{"model": "m", "shard": fmt.Sprintf("%d/%d", i, count)}
		dirs = append(dirs, t.TempDir())
		j := open(t, dirs[i-1], c)
		for _, task := range Of(shard, []int{0, 1, 2, 3, 4, 5}) {
			must(t, j.Add(fmt.Sprint("task ", task), []row{{task + 1, time.Unix(int64(task), 0).UTC()}}))
		}
		j.Close()
	}
	return dirs
}

func merged(dirs ...string) (tasks []Entry[row], missing []string, err error) {
	var all []Part[row]
	for _, dir := range dirs {
		p, err := format.ReadPart(dir)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, p)
	}
	return format.Merge(all)
}

// Parts in any order, one of them given twice, are the whole; saved, it is an experiment that can go on.
func TestMerge(t *testing.T) {
	dirs := parts(t, 3)
	for _, order := range [][]string{dirs, {dirs[2], dirs[0], dirs[1], dirs[0]}} {
		tasks, missing, err := merged(order...)
		if err != nil || len(missing) > 0 || len(tasks) != 6 {
			t.Fatalf("%d tasks, missing %q, %v", len(tasks), missing, err)
		}
		for i, e := range tasks {
			if e.Rows[0].Value != i+1 {
				t.Errorf("task %d is %+v", i, e)
			}
		}
		dir, c := filepath.Join(t.TempDir(), "all"), map[string]any{"model": "m"}
		for range 2 { // saved again, it stays
			must(t, format.Save(dir, c, tasks))
		}
		j := open(t, dir, c)
		if len(j.Rows()) != 6 {
			t.Errorf("%d rows were saved", len(j.Rows()))
		}
		must(t, j.Add("other", nil))
		j.Close()
		if err := format.Save(dir, c, tasks); err == nil || !strings.Contains(err.Error(), "'other', which no part holds") {
			t.Errorf("a directory with more: %v", err)
		}
	}
	if _, missing, err := merged(dirs[0], dirs[2]); err != nil || !slices.Equal(missing, []string{"2/3"}) {
		t.Errorf("missing %q, %v", missing, err)
	}
}

// Directories that do not go together, or are damaged, are refused in one sentence that names one of them.
func TestMergeRefuses(t *testing.T) {
	for want, change := range map[string]struct {
		part     int
		old, new string
	}{
		"is of another experiment than":  {1, `"model":"m"`, `"model":"other"`},
		"is one of 2 parts, but":         {0, `"shard":"1/2"`, `"shard":"1/3"`},
		"is not a part of an experiment": {0, `,"shard":"1/2"`, ``},
		"is not a part such as 2/8":      {0, `"shard":"1/2"`, `"shard":"7/2"`},
		`"1/2x" is not a part such as`:   {0, `"shard":"1/2"`, `"shard":"1/2x"`},
		"with other values":              {1, `"task 1"`, `"task 0"`},
		"test.state is damaged":          {0, `{"task"`, `x`},
	} {
		dirs := parts(t, 2)
		path := filepath.Join(dirs[change.part], format.File)
		data, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(data), change.old) {
			t.Fatalf("no %q in %s: %v", change.old, data, err)
		}
		must(t, os.WriteFile(path, []byte(strings.Replace(string(data), change.old, change.new, 1)), 0o666))
		if _, _, err := merged(dirs...); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") ||
			!strings.Contains(err.Error(), dirs[0]) && !strings.Contains(err.Error(), dirs[1]) {
			t.Errorf("expected %q, found %v", want, err)
		}
	}
}
