package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/internal/require"
)

// asInfer is the environment variable that makes the test binary run as infer,
// for the tests that need a process of its own.
const asInfer = "GPT2SCOPE_TEST_AS_INFER"

func TestMain(m *testing.M) {
	if os.Getenv(asInfer) != "" {
		main()
	}
	os.Setenv(asInfer, "1")               // what the program starts of itself is the program
	os.Setenv("CUDA_VISIBLE_DEVICES", "") // the tests are of the CPU, also where there is a GPU
	os.Setenv(cli.HistoryVariable, "off") // and keep nothing of what they run
	cache, err := os.MkdirTemp("", "gpt2scope-cache-")
	if err != nil {
		panic(err)
	}
	os.Setenv("XDG_CACHE_HOME", cache)
	if err := storeMadeUp(); err != nil {
		panic(err)
	}
	status := m.Run()
	os.RemoveAll(cache)
	os.Exit(status)
}

// tiny is a model that takes no time: with the byte alphabet, so that it has a
// tokenizer, and a context that is soon full.
const tiny = "random:L=2,C=64,NH=4,V=257,T=64"

// ended is what a run left behind.
type ended struct {
	status         int
	stdout, stderr string
}

// infer runs the command line in this process.
func infer(t *testing.T, args ...string) ended {
	t.Helper()
	return inferWith(t, context.Background(), "", args...)
}

func inferWith(t *testing.T, ctx context.Context, stdin string, args ...string) ended {
	t.Helper()
	var stdout, stderr bytes.Buffer
	status := run(ctx, new(cli.ModelFlags), args, strings.NewReader(stdin), &stdout, &stderr)
	return ended{status, stdout.String(), stderr.String()}
}

// mustInfer runs a command line that must succeed.
func mustInfer(t *testing.T, args ...string) ended {
	t.Helper()
	e := infer(t, args...)
	if e.status != exitOK {
		t.Fatalf("infer %q ended with status %d: %s", args, e.status, e.stderr)
	}
	return e
}

// unmarshal reads JSON.
func unmarshal(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
}

// decode reads one JSON value, which has no other fields.
func decode(t *testing.T, text string, into any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil || d.More() {
		t.Fatalf("not the one JSON value that was promised: %v\n%s", err, text)
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data := require.Value(os.ReadFile(path))(t)
	return data
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o666))
}

// checkFailure checks that a run failed as it should: with the status, nothing on
// standard output, and one line on standard error that has all of the facts.
func checkFailure(t *testing.T, e ended, status int, facts ...string) {
	t.Helper()
	if e.status != status {
		t.Errorf("status %d, not %d; stderr %q", e.status, status, e.stderr)
	}
	if e.stdout != "" {
		t.Errorf("stdout has %q", e.stdout)
	}
	checkOneLine(t, e.stderr, facts...)
}

func checkOneLine(t *testing.T, stderr string, facts ...string) {
	t.Helper()
	if !strings.HasPrefix(stderr, "infer: ") || strings.Count(stderr, "\n") != 1 || !strings.HasSuffix(stderr, "\n") {
		t.Errorf("stderr is not one line that begins with \"infer: \": %q", stderr)
	}
	for _, leak := range []string{"panic", "goroutine", "strconv.", " json: ", "%!", "<nil>"} {
		if strings.Contains(stderr, leak) {
			t.Errorf("stderr has %q in it: %q", leak, stderr)
		}
	}
	contains(t, stderr, facts...)
}

// TestUsage is about mistakes in how the program is called: status 2, and the
// hint that helps.
func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args  string // fields; '' is an empty one
		facts []string
	}{
		{"inffo", []string{`word "inffo"`, "did you mean 'infer info'?"}},
		{"trace chek x", []string{"did you mean 'infer trace check'?"}},
		{"eval --zebra", []string{"--zebra", "infer eval --help"}},
		{"-p", []string{"-p"}},
		{"-profile", []string{"-profile", "did you mean --profile?"}},
		{"trace -layers=6", []string{"did you mean --layers?"}},
		{"-p -profile --temp NaN", []string{"--temp NaN"}},
		{"help inffo", []string{"no command 'infer inffo'", "infer --help"}},
		{"help trace chek", []string{"no command 'infer trace chek'"}},

		{"-m ''", []string{"--model"}},
		{"-m random:bogus", []string{"--model: ", "random:bogus", "gpt2-medium"}},
		{"-n -2", []string{"--tokens -2: it must be a whole number, at least 0, or -1 (until the end of text)"}},
		{"-n 1e3", []string{"--tokens 1e3", "whole number"}},
		{"--profile=cake", []string{"--profile cake", "folded"}},
		{"--temp NaN", []string{"--temp NaN"}},
		{"--top-p 1.1", []string{"--top-p 1.1", "0 to 1"}},
		{"--repeat-last-n 32", []string{"--repeat-penalty"}},
		{"-i --json", []string{"--interactive", "--json"}},
		{"-i -f -", []string{"--interactive", "--file -"}},
		{"--stop ''", []string{"--stop"}},
		{"--layers some", []string{"--layers some", "all"}},
		{"-s -1", []string{"--seed -1: it must be a whole number, at least 0"}},
		{"--json=maybe", []string{"--json maybe: it must be true or false"}},
		{"layers -o x --drop x", []string{"--drop x: it must be whole numbers"}},
		{"completion powershel", []string{"did you mean 'infer completion powershell'?"}},
		{"--json --logprobs 2", []string{"--logprobs=2"}},
		{"foo bar", []string{`word "foo"`, "-p 'foo bar'"}},
		{"trace", []string{"give a command", "infer trace --help"}},
		{"--logprobs", []string{"--json"}},
		{"--dtype FLOAT16", []string{"--dtype FLOAT16", "f32, bf16 or q8"}},
		{"--device reference --dtype bf16", []string{"--dtype bf16", "reference", "float64"}},
		{"export --out x --dtype q8", []string{"--dtype q8", "f32 or bf16"}},
		{"--mode fast", []string{"--mode fast", "eager, graph or persistent"}},
		{"--variant naive", []string{"--variant naive", "STAGE=NAME"}},
		{"-t 1000000", []string{"--threads 1000000", "256"}},
		{"-c 0", []string{"--context 0: it must be a whole number, at least 1"}},
		{"-p x -f y", []string{"--prompt", "--file", "--ids"}},
		{"-m " + tiny + " --ids 1,two,3", []string{"--ids", `"two"`, "number 2"}},
		{"-m " + tiny + " --ids ,", []string{"--ids", "no token ids"}},
		{"eval", []string{"--text"}},
		{"dump --out x.npy", []string{"--stage"}},
		{"export", []string{"--out"}},
		{"bench --phase all", []string{"--phase all: it must be decode or prefill"}},
		{"bench kernel attn.spda", []string{"no stage attn.spda", "attn.sdpa", "lm_head"}},
		{"trace show x --format yaml", []string{"--format yaml: it must be table, csv or json"}},
	} {
		t.Run(c.args, func(t *testing.T) {
			args := strings.Fields(c.args)
			for i := range args {
				args[i] = strings.Trim(args[i], "'")
			}
			checkFailure(t, infer(t, args...), exitUsage, c.facts...)
		})
	}
}

// TestModelFlagsEverywhere says that every command checks the flags that choose
// the model and device, given before its name or after.
func TestModelFlagsEverywhere(t *testing.T) {
	for _, command := range []string{"info", "eval", "dump", "bench", "layers"} {
		checkFailure(t, infer(t, command, "--device", "abacus"), exitUsage, "--device abacus")
		checkFailure(t, infer(t, "--device", "abacus", command), exitUsage, "--device abacus")
		checkFailure(t, infer(t, "--dtype", "f8", command, "-m", tiny), exitUsage, "--dtype f8")
	}
	before := mustInfer(t, "-m", tiny, "--layers", "1", "-t", "1", "info").stdout
	after := mustInfer(t, "info", "-m", tiny, "--layers", "1", "-t", "1").stdout
	if before != after || !strings.Contains(after, "layers 1 of 2") {
		t.Errorf("flags before the command give\n%s\nand after it\n%s", before, after)
	}
}

// Each flag of model and device is listed and taken by the commands in which it does something,
// and refused by others.
func TestFlagsThatDoNothing(t *testing.T) {
	values := map[string]string{"model": tiny, "layers": "1", "device": "cpu", "dtype": "bf16", "mode": "auto", "kv": "q8", "variant": "a=b", "threads": "1", "context": "9", "chunk": "2", "tokenizer": "gpt2",
		"lora": "no/such", "activation": "gelu"}
	for command, used := range map[string]string{
		"tokenize -p x": "model tokenizer quiet", "devices": "quiet", "bench ceilings": "device threads quiet", "trace check --infer no/such/file": "model quiet",
		"export -o no/such/": "model tokenizer lora activation layers dtype quiet", "completion bash": "",
	} {
		words := strings.Fields(command)
		help := mustInfer(t, append(words, "--help")...).stdout
		newRoot(new(cli.ModelFlags)).PersistentFlags().VisitAll(func(f *pflag.Flag) {
			isUsed := slices.Contains(strings.Fields(used), f.Name)
			if strings.Contains(help, " --"+f.Name+" ") != isUsed {
				t.Errorf("%s --help: --%s: listed %v, used %v", command, f.Name, !isUsed, isUsed)
			}
			arg := "--" + f.Name
			if f.NoOptDefVal == "" {
				arg += "=" + values[f.Name]
			}
			if !isUsed && f.Name != "quiet" {
				checkFailure(t, infer(t, append(words, arg)...), exitUsage, "--"+f.Name+" does nothing in 'infer "+words[0])
			}
		})
	}
	mustInfer(t, "tokenize", "-p", "x", "-m", tiny, "--quiet")
	mustInfer(t, "devices", "--quiet")
}

// Every command has a help with an example, all flags have a description, and lines fit a terminal.
func TestHelp(t *testing.T) {
	root := newRoot(new(cli.ModelFlags))
	for _, c := range cli.AllCommands(root) {
		if c.Name() == "help" || strings.Contains(c.CommandPath(), "completion") {
			continue
		}
		text := mustInfer(t, append(strings.Fields(c.CommandPath())[1:], "--help")...).stdout
		if !strings.Contains(text, "\nExamples:\n  infer") {
			t.Errorf("%s: no example", c.CommandPath())
		}
		c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && (!strings.Contains(text, "--"+f.Name) || f.Usage == "") {
				t.Errorf("%s: the help lacks --%s", c.CommandPath(), f.Name)
			}
		})
		for line := range strings.Lines(text) {
			if len(line) > 130 || strings.Count(line, "(default") > 1 || strings.Contains(line, "(default )") {
				t.Errorf("%s: %s", c.CommandPath(), line)
			}
		}
	}
}

func TestShellQuote(t *testing.T) {
	for in, want := range map[string]string{"a.txt": "a.txt", "": "''", "two words": "'two words'", "it's": `'it'\''s'`, "$HOME": "'$HOME'"} {
		if got := cli.ShellQuote(in); got != want {
			t.Errorf("shellQuote(%q) = %s, not %s", in, got, want)
		}
	}
}

// failing is a writer on a full disk.
type failing struct{ after int }

func (f *failing) Write(p []byte) (int, error) {
	if f.after -= len(p); f.after < 0 {
		return 0, &os.PathError{Op: "write", Path: "/dev/stdout", Err: fmt.Errorf("no space left on device")}
	}
	return len(p), nil
}

// TestOutputFails says that a lost output is never a success.
func TestOutputFails(t *testing.T) {
	text := t.TempDir() + "/text"
	writeFile(t, text, "some text")
	for _, args := range [][]string{
		{"-m", tiny, "-n", "20", "--ignore-eos"}, {"-m", tiny, "--json"}, {"info", "-m", tiny}, {"eval", "-m", tiny, "--text", text},
		{"tokenize", "-m", tiny, "-p", "hello"}, {"bench", "-m", tiny, "--repeat", "1", "--no-floor"}, {"bench", "-m", tiny, "--repeat", "1", "--no-floor", "--json"},
	} {
		var stderr bytes.Buffer
		status := run(context.Background(), new(cli.ModelFlags), args, strings.NewReader(""), &failing{after: 4}, &stderr)
		if status != exitFailure {
			t.Errorf("%q: status %d", args, status)
		}
		checkOneLine(t, stderr.String(), "cannot write to standard output: no space left on device")
	}
}
