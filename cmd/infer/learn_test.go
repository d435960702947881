package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gpt2scope/cmd/infer/cli"
	learncmd "gpt2scope/cmd/infer/learn"
	"gpt2scope/internal/require"
	"gpt2scope/internal/stub"
	"gpt2scope/learn"
)

// recordingFile writes a recording whose lesson 6 has three ways of equal times on both devices.
func recordingFile(t *testing.T) string {
	t.Helper()
	var d learn.Data
	for round := range 10 {
		for _, way := range []string{"a * a", "square(a)", "a ** 2", "-a"} {
			d = append(d, learn.Point{Case: way, Quantity: "time_us", Value: 3333 + float64(round)})
		}
	}
	r := learn.Recording{Machine: learn.Machine{CPU: "Some CPU", Threads: 4, GPU: "Some\x1b[31m GPU\u009b"}}
	r.Add(learn.Result{Number: 6, Parts: []learn.Part{{Device: learn.OnCPU, Data: d}, {Device: learn.OnGPU, Data: d}}})
	file := filepath.Join(t.TempDir(), "lessons.json.gz")
	f := require.Value(os.Create(file))(t)
	defer f.Close()
	must(t, r.Write(f))
	return file
}

func TestLearn(t *testing.T) {
	list := mustInfer(t, "learn").stdout
	oneLine := strings.Join(strings.Fields(list), " ")
	for _, l := range learn.All() {
		contains(t, oneLine, fmt.Sprintf("%d %s ", l.Number, l.Claim))
	}
	inOrder(t, mustInfer(t, "learn", "6", "--from", recordingFile(t)).stdout, "Lesson 6: a * a", "\nREFUTED\n", "CPU, recorded on ", " on Some CPU, 4 threads: refuted\n",
		"GPU, recorded on ", " on Some[31m GPU: refuted\n", "  a * a                          3.34 ms  [3.33, 3.34]\n", "\n  The intervals of both differences hold 0", "\nWhy\n", "\nGo on: infer ")
}

// inOrder checks that a text has parts, one after the other.
func inOrder(t *testing.T, text string, parts ...string) {
	t.Helper()
	rest := text
	for _, part := range parts {
		_, after, ok := strings.Cut(rest, part)
		if !ok {
			t.Fatalf("%q is not there, or not after the parts before it:\n%s", part, text)
		}
		rest = after
	}
}

// What a lesson measured is written, and gives the same verdicts again.
func TestLearnRecord(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lessons.json.gz")
	var now, again learncmd.LearnJSON
	unmarshal(t, mustInfer(t, "learn", "6", "--device", "cpu", "--json", "--record", file).stdout, &now)
	unmarshal(t, mustInfer(t, "learn", "6", "--json", "--from", file).stdout, &again)
	a, b := now.Lessons[0].Parts[0], again.Lessons[0].Parts[0]
	if a.Recorded != "" || b.Recorded == "" || a.Verdict != b.Verdict || a.Text != b.Text || len(b.Data) < 40 {
		t.Errorf("measured %+v, recorded %+v", a, b)
	}
}

// The page and its data are written, and a directory that cannot be made is refused before anything is measured.
func TestLearnPage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "lessons")
	e := mustInfer(t, "learn", "6", "--from", recordingFile(t), "-o", dir)
	contains(t, e.stderr, filepath.Join(dir, "learn.html")+": 1 lesson; open it in a browser\n")
	html := readFile(t, filepath.Join(dir, "learn.html"))
	contains(t, string(html), "Verdicts on 1 claim: 0 shown, 0 half true, 1 refuted, 0 that", "<svg ", "Some CPU")
	var j learncmd.LearnJSON
	if data, err := os.ReadFile(filepath.Join(dir, "learn.json")); err != nil || json.Unmarshal(data, &j) != nil || len(j.Lessons) != 1 || j.Lessons[0].Verdict != learn.Refuted {
		t.Errorf("learn.json: %v, %s", err, data)
	}
	checkFailure(t, infer(t, "learn", "6", "-o", filepath.Join(dir, "learn.html")), exitFailure, "--out "+filepath.Join(dir, "learn.html"), "it is a file")
	mustInfer(t, "learn", "6", "--from", recordingFile(t), "-o", dir) // which is one of its own
	checkFailure(t, infer(t, "learn", "6", "-o", filepath.Dir(dir)), exitFailure, "it holds lessons; give a new or empty directory\n")
}

func TestLearnMistakes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "not-a-recording")
	writeFile(t, file, "x")
	for _, c := range []struct {
		args   string
		status int
		fact   string
	}{
		{"learn 99", exitUsage, "there is no lesson 99"}, {"learn 6 --all", exitUsage, "--all takes no numbers"}, {"learn --record x", exitUsage, "name a lesson"},
		{"learn 6 --device reference", exitUsage, "--device reference"}, {"learn 6 --from a --record b", exitUsage, "--from measures nothing"},
		{"learn 6 --from " + file, exitFailure, "not a recording"}, {"learn 6 --record " + file + "/no/x", exitFailure, "cannot be written"},
	} {
		checkFailure(t, infer(t, strings.Fields(c.args)...), c.status, c.fact)
	}
}

// The command with which a lesson says to go on is one that exists, with its flags; TestTraceSamples runs those that read a recording.
func TestLearnGoesOn(t *testing.T) {
	for _, l := range learn.All() {
		words := strings.TrimPrefix(l.GoOn, "infer ")
		if strings.HasPrefix(words, "tasks ") {
			mustInfer(t, strings.Fields(words)...)
		}
		root := newRoot(new(cli.ModelFlags))
		c, rest, err := root.Find(strings.Fields(words))
		if err == nil {
			err = c.ParseFlags(rest)
		}
		if err != nil || c == root && !strings.HasPrefix(words, "-") {
			t.Errorf("lesson %d: %q is no command: %v", l.Number, l.GoOn, err)
		}
	}
}

// A reader's kernel is checked on the emulator, where what it does outside its arrays shows, and timed on a GPU.
func TestLearnMine(t *testing.T) {
	dir := t.TempDir()
	file := func(task string, change ...string) string {
		path := filepath.Join(dir, task+".cu")
		contains(t, mustInfer(t, "learn", path, "--new", task).stderr, path+" has a kernel that is right")
		source, err := os.ReadFile(path)
		if err != nil || os.WriteFile(path, []byte(strings.NewReplacer(change...).Replace(string(source))), 0o600) != nil {
			t.Fatal(err)
		}
		return path
	}
	sum, add, product := file("reduce.sum"), file("vector.add", "if (i < n) ", ""), file("matmul")
	if _, err := exec.LookPath("c++"); err == nil {
		inOrder(t, mustInfer(t, "learn", sum, "--device", "cpu", "--size", "10000").stdout, "reduce_sum in reduce.sum.cu is right", "On the emulator", "blocks                3",
			"Of n=10000: right. All of the result agrees with float64.")
		inOrder(t, mustInfer(t, "learn", add, "--device", "cpu").stdout, "REFUTED", "outside its arrays, at vector.add.cu:5")
	}
	withStub(t, "STUB_COMPUTES")
	stub.NVRTC(t)
	storeStub(t)
	for _, path := range []string{add, sum, product} {
		inOrder(t, mustInfer(t, "learn", path, "--device", "cuda", "--size", "64").stdout, "floor: ", "tuned ", "yours ", "yours over tuned", "waves", "right, and ", "your grid")
	}
	for args, fact := range map[string]string{
		"learn x.cu --new gpt2": "give one of vector.add, vector.square", "learn 6 --new matmul": "name one file", "learn x.cu --all": "are for lessons",
	} {
		checkFailure(t, infer(t, strings.Fields(args)...), exitUsage, fact)
	}
	other := file("vector.square", `extern "C" `, "")
	checkFailure(t, infer(t, "learn", other), exitFailure, `write extern "C"`)
	checkFailure(t, infer(t, "learn", other, "--new", "matmul"), exitFailure, "exists")
	writeFile(t, other, "int f();")
	checkFailure(t, infer(t, "learn", other), exitFailure, "has no kernel of a task")
}
