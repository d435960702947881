package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The tables of the pages are those that this program makes of the raw outputs: run go run ./bench/tables.
func TestPages(t *testing.T) {
	for _, page := range pages {
		path := filepath.Join("../..", page)
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want, err := render(string(got), filepath.Dir(path))
		if err != nil {
			t.Fatalf("%s: %v", page, err)
		}
		if string(got) != want {
			t.Errorf("the tables of %s are not those of its raw outputs; run 'go run ./bench/tables'", page)
		}
	}
}

// README.md stays short.
func TestReadmeLength(t *testing.T) {
	page, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(page), "\n"); n > 150 {
		t.Errorf("README.md has %d lines, expected 150 at most", n)
	}
}

const raw = `run of 2026-12-01T05:39Z, commit abc1234
A processor, 2 CPUs, 2 threads, load 1.5; Linux 6, Python 3

f32, median ms over processes
                                floor    infer  % of floor   fastest peer                infer / peer  lowest
A  decode        past=128      0.757    0.869         87%   ONNX Runtime         1.030          0.84    0.78
D  prefill-all   T=1024        391.0    560.0         70%   PyTorch, oneDNN      500.0          1.12    0.57

q8, median ms over processes
                                floor    infer  % of floor   fastest peer                infer / peer  lowest
A  decode        past=128      0.252    0.321         79%   llama.cpp            0.766          0.42    0.53
D  prefill-all   T=1024        394.0    654.1         60%   CTranslate2          640.3          1.02    0.83

versions: PyTorch 2, infer 1; load at the end 2.1
`

// A table has all rows of a run, with losses bold, its date, commit and machine.
func TestRender(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("run.txt", raw)
	write("2026-12-02-old.txt", strings.Replace(raw, "run of 2026-12-01T05:39Z, commit abc1234\n", "", 1))
	page := "before\n<!-- peers: run.txt -->\nold\n<!-- end of peers -->\nbetween\n" +
		"<!-- peers: run.txt \"X\" 2026-12-02-old.txt \"Y\" -->\n<!-- end of peers -->\nafter\n"
	got, err := render(page, dir)
	if err != nil {
		t.Fatal(err)
	}
	want := `before
<!-- peers: run.txt -->
[Run of 2026-12-01](run.txt), commit abc1234. A processor, 2 CPUs, 2 threads, load 1.5; Linux 6, Python 3.

| work | f32, ms | fastest peer | ratio | q8, ms | fastest peer | ratio |
|---|---|---|---|---|---|---|
| A decode | 0.869 (87 %) | 1.030 ONNX Runtime | 0.84 | 0.321 (79 %) | 0.766 llama.cpp | 0.42 |
| D prefill-all | 560.0 (70 %) | 500.0 PyTorch, oneDNN | **1.12** | 654.1 (60 %) | 640.3 CTranslate2 | **1.02** |

infer is slower in 2 of 4: D prefill-all f32 1.12, D prefill-all q8 1.02. Versions: PyTorch 2, infer 1; load at the end 2.1.
<!-- end of peers -->
between
<!-- peers: run.txt "X" 2026-12-02-old.txt "Y" -->
| work | X, f32 | X, q8 | Y, f32 | Y, q8 |
|---|---|---|---|---|
| A decode | 0.869 (0.84) | 0.321 (0.42) | 0.869 (0.84) | 0.321 (0.42) |
| D prefill-all | 560.0 (**1.12**) | 654.1 (**1.02**) | 560.0 (**1.12**) | 654.1 (**1.02**) |

* X: [run of 2026-12-01](run.txt), commit abc1234; A processor, 2 CPUs, 2 threads, load 1.5; Linux 6, Python 3. infer is slower in 2 of 4: D prefill-all f32 1.12, D prefill-all q8 1.02.
* Y: [run of 2026-12-02](2026-12-02-old.txt), its output names no commit; A processor, 2 CPUs, 2 threads, load 1.5; Linux 6, Python 3. infer is slower in 2 of 4: D prefill-all f32 1.12, D prefill-all q8 1.02.
<!-- end of peers -->
after
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if again, err := render(got, dir); err != nil || again != got {
		t.Errorf("made again, the page differs (%v):\n%s", err, again)
	}
}

// An output with rows missing, and a page that names none, are errors.
func TestRenderErrors(t *testing.T) {
	dir := t.TempDir()
	lines := strings.SplitAfter(raw, "\n")
	for name, text := range map[string]string{
		"row.txt":      strings.Join(append(append([]string{}, lines[:5]...), lines[6:]...), ""),
		"versions.txt": strings.Replace(raw, "versions", "programs", 1),
		"machine.txt":  strings.Replace(raw, "CPUs", "cores", 1),
		"date.txt":     strings.Replace(raw, "run of", "at", 1),
		"empty.txt":    "",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := render("<!-- peers: "+name+" -->\n<!-- end of peers -->\n", dir); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v, expected one that names the file", name, err)
		}
	}
	for _, page := range []string{"", "<!-- peers: none.txt -->\n<!-- end of peers -->", "<!-- peers: -->\n<!-- end of peers -->", "<!-- peers: row.txt -->\n"} {
		if _, err := render(page, dir); err == nil {
			t.Errorf("page %q: no error", page)
		}
	}
}
