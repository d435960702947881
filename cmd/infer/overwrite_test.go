package main

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpt2scope/internal/require"
)

// contents returns the files in a directory, with what they hold.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries := require.Value(os.ReadDir(dir))(t)
	files := map[string]string{}
	for _, e := range entries {
		data := readFile(t, filepath.Join(dir, e.Name()))
		files[e.Name()] = string(data)
	}
	return files
}

// unchanged fails if a directory holds other than before.
func unchanged(t *testing.T, dir string, before map[string]string) {
	t.Helper()
	if after := contents(t, dir); !maps.Equal(before, after) {
		t.Fatalf("%s has %d files, and they are not the %d of before", dir, len(after), len(before))
	}
}

// An export never writes to the model that it reads, whatever the directory is called, and to
// another directory that holds files only if it is forced to.
func TestExportKeepsItsSource(t *testing.T) {
	t.Chdir(t.TempDir())
	mustInfer(t, "export", "-m", tiny, "-o", "model")
	before := contents(t, "model")
	here := require.Value(os.Getwd())(t)
	must(t, errors.Join(os.Symlink("model", "link"), os.Symlink(filepath.Join(here, "link"), "link2"), os.Mkdir("sub", 0o777)))
	for _, source := range []string{"model", "link"} {
		for _, out := range []string{"model", "./model/", "sub/../model", filepath.Join(here, "model"), "link", "link/", "link2"} {
			for _, force := range []string{"--force=false", "--force"} {
				checkFailure(t, infer(t, "export", "-m", source, "--layers", "1", "-o", out, force), exitUsage, "read", "give another name")
				unchanged(t, "model", before)
			}
		}
	}

	// Another model, and a directory of other files.
	mustInfer(t, "export", "-m", "random:L=3,C=64,NH=4,V=257,T=64", "-o", "other")
	other := contents(t, "other")
	checkFailure(t, infer(t, "export", "-m", "model", "-o", "other"), exitFailure, "other", "holds config.json, merges.txt", "new or empty", "--force")
	unchanged(t, "other", other)
	writeFile(t, "sub/notes", "mine")
	checkFailure(t, infer(t, "export", "-m", "model", "-o", "sub"), exitFailure, "sub", "holds notes", "--force")
	mustInfer(t, "export", "-m", "model", "-o", "sub", "--force")
	want := maps.Clone(before)
	want["notes"] = "mine"
	unchanged(t, "sub", want)

	// A link in a forced directory is replaced: what it points to stays.
	must(t, errors.Join(os.Remove("other/model.safetensors"), os.Symlink("../model/model.safetensors", "other/model.safetensors")))
	mustInfer(t, "export", "-m", "model", "--layers", "1", "-o", "other", "--force")
	unchanged(t, "model", before)
	if e := mustInfer(t, "info", "-m", "other"); !strings.Contains(e.stdout, "layers 1 of 1") {
		t.Error(e.stdout)
	}
}

// No command writes to a file that it reads, or to one of its model.
func TestOutputsKeepInputs(t *testing.T) {
	gguf := readFile(t, "../../gpt2/testdata/gguf/f32.gguf")
	t.Chdir(t.TempDir())
	mustInfer(t, "export", "-m", tiny, "-o", "model")
	before := contents(t, "model")
	for name, text := range map[string]string{"prompt": "ROMEO:", "ids": "1,2,3"} {
		writeFile(t, name, text)
	}
	writeFile(t, "copy.gguf", string(gguf))
	must(t, errors.Join(os.Symlink("model", "link"), os.Symlink("prompt", "soft"), os.Link("ids", "hard"), os.Symlink("copy.gguf", "gguf-link"),
		os.Mkdir("results", 0o777), os.WriteFile("results/layers.csv", []byte("a text"), 0o666), os.Link("prompt", "results/layers.json"),
		os.WriteFile("b.json", []byte("a recording"), 0o666), os.WriteFile("b.csv", []byte("samples"), 0o666), os.WriteFile("results/samples.csv", []byte("more"), 0o666)))
	for _, c := range []string{
		"dump -m model --stage ln_f -p x -o model/model.safetensors",
		"dump -m model --stage ln_f -p x -o link/config.json",
		"dump -m model --stage ln_f -f prompt -o ./prompt",
		"dump -m model --stage ln_f -f soft -o prompt",
		"dump -m model --stage ln_f --ids @ids -o hard",
		"-m model -p x -n 1 --no-baseline --trace model/config.json",
		"-m model -f prompt -n 1 --no-baseline --trace soft",
		"-m model --ids @hard -n 1 --no-baseline --trace ./ids",
		"dump -m copy.gguf --ids 1 --stage ln_f -o ./copy.gguf",
		"dump -m copy.gguf --ids 1 --stage ln_f -o gguf-link",
		"--ids 1 -n 1 --no-baseline -m gguf-link --trace copy.gguf",
		"layers -m copy.gguf -o results --force --window 4 --text results/layers.csv",
		"layers -m copy.gguf -o results --force --window 4 --text soft",
		"layers -m model -o link/ --force",
		"layers -m model -o ./model",
		"trace report a.json b.json -o ./b.json",
		"trace convert a.json b.json -o b.json",
		"trace convert a.json --counters ids -o hard",
		"tasks simulate a.csv b.csv --gantt b.csv",
		"tasks simulate a.csv --model-file ids --gantt hard",
		"tasks run a.csv b.csv --gantt ./b.csv",
		"tasks run a.csv --model-file prompt --gantt soft",
	} {
		checkFailure(t, infer(t, strings.Fields(c)...), exitUsage, "read", "give another name")
		unchanged(t, "model", before)
	}
	for name, text := range map[string]string{"prompt": "ROMEO:", "ids": "1,2,3", "copy.gguf": string(gguf), "results/layers.csv": "a text", "b.json": "a recording", "b.csv": "samples", "results/samples.csv": "more"} {
		if data, err := os.ReadFile(name); err != nil || string(data) != text {
			t.Errorf("%s holds %q, %v", name, data, err)
		}
	}
	mustInfer(t, "-m", "model", "-p", "x", "-n", "1", "--no-baseline", "--trace", "model/new.json") // a new file is none of the model's
}
