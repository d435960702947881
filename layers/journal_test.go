package layers

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

var someConfiguration = map[string]any{"model": "m", "repeat": 3, "phases": []string{"decode"}}

// filled returns a directory with a state of two tasks, and the rows of it.
func filled(t *testing.T) (dir string, tasks []Task, rows []Row) {
	t.Helper()
	dir = t.TempDir()
	j, err := OpenJournal(dir, someConfiguration)
	if err != nil {
		t.Fatal(err)
	}
	tasks = Schedule{Phases: []string{TaskDecode}, Repeat: 3}.Tasks([]Variant{Depth(1, 2)})
	for i, task := range tasks[:2] {
		if err := j.Add(task, []Value{{Phase: TaskDecode, Metric: "decode time", Unit: "ms", Value: 1.5 + float64(i)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, tasks, j.Rows()
}

// An experiment resumes at the task after the last whole line, also if the last line was cut off at any byte.
func TestJournalGoesOn(t *testing.T) {
	dir, tasks, rows := filled(t)
	path := filepath.Join(dir, StateFile)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(whole, []byte("\n"))
	if len(lines) != 4 || len(rows) != 2 { // the last is empty
		t.Fatalf("%d lines, %d rows", len(lines), len(rows))
	}
	for cut := 0; cut <= len(whole); cut++ {
		if inLine := cut - (bytes.LastIndexByte(whole[:cut], '\n') + 1); inLine > 2 && cut%17 != 0 && cut < len(whole)-2 { // one cut there is like another
			continue
		}
		if err := os.WriteFile(path, whole[:cut], 0o666); err != nil {
			t.Fatal(err)
		}
		j, err := OpenJournal(dir, someConfiguration)
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		n := max(0, bytes.Count(whole[:cut], []byte("\n"))-1)
		if !reflect.DeepEqual(j.Rows(), append([]Row(nil), rows[:n]...)) {
			t.Fatalf("cut at %d: %+v", cut, j.Rows())
		}
		for i, task := range tasks {
			if j.Done(task) != (i < n) {
				t.Fatalf("cut at %d: task %d is done: %v", cut, i, j.Done(task))
			}
		}
		if err := j.Add(tasks[2], nil); err != nil {
			t.Fatal(err)
		}
		j.Close()
		if j, err = OpenJournal(dir, someConfiguration); err != nil || !j.Done(tasks[2]) || len(j.Rows()) != n {
			t.Fatalf("cut at %d, after another task: %v", cut, err)
		}
		j.Close()
	}
}

func TestJournalRefuses(t *testing.T) {
	dir, _, _ := filled(t)
	path := filepath.Join(dir, StateFile)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(whole), "\n")
	for content, want := range map[string]string{
		"hello\n":                             "damaged",
		"{}\n":                                "damaged",
		"\n":                                  "damaged",
		lines[0] + "x\n" + lines[2]:           "line 2 is not that of a task",
		lines[0] + "{}\n" + lines[2]:          "line 2 is not that of a task",
		lines[0] + lines[1] + lines[1]:        "line 3 repeats a task",
		lines[0] + `{"task":"a","rows":[{}]}`: "", // cut off
		lines[0] + "{\"task\":\"a\",\"rows\":[{}]}\n":                "incomplete value",
		strings.Replace(lines[0], `"version":1`, `"version":2`, 1):   "version 2",
		strings.Replace(lines[0], `"repeat":3`, `"repeat":4`, 1):     "expected repeat 3, found 4",
		strings.Replace(lines[0], `"repeat":3`, `"past":3`, 1):       "expected past absent, found 3",
		strings.Replace(lines[0], `["decode"]`, `["decode","x"]`, 1): `expected phases ["decode"], found ["decode","x"]`,
		string(bytes.Repeat([]byte{0}, 100)) + "\n" + string(whole):  "damaged",
	} {
		if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
		j, err := OpenJournal(dir, someConfiguration)
		if err == nil {
			j.Close()
		}
		switch {
		case want == "" && err != nil:
			t.Errorf("%.60q: %v", content, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n")):
			t.Errorf("%.60q: %v, not %q", content, err, want)
		}
		if want != "" { // what is refused is left as it is
			if now, err := os.ReadFile(path); err != nil || string(now) != content {
				t.Errorf("%.60q was changed", content)
			}
		}
	}
}

func TestJournalDirectory(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{file, filepath.Join(file, "below"), "/proc/none"} {
		if j, err := OpenJournal(d, someConfiguration); err == nil || strings.Count(err.Error(), d) < 1 {
			t.Errorf("%s: %v", d, err)
			if j != nil {
				j.Close()
			}
		}
	}
	j, err := OpenJournal(dir, someConfiguration)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if _, err := OpenJournal(dir, someConfiguration); err == nil || !strings.Contains(err.Error(), "another experiment is writing") {
		t.Errorf("two experiments write to a directory: %v", err)
	}
}

func TestCSV(t *testing.T) {
	_, _, rows := filled(t)
	var b bytes.Buffer
	rows[0].Order = []int{0, 2, 1}
	if err := WriteCSV(&b, rows[:1]); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	if lines[0] != "variant,kind,layers,order,phase,metric,unit,repeat,value,time" || !strings.HasPrefix(lines[1], "1,depth,3,0 2 1,decode,decode time,ms,1,1.5,2") || !strings.HasSuffix(lines[1], "Z") || len(lines) != 3 {
		t.Errorf("%q", lines)
	}
}
