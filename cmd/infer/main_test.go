package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"gpt2scope/ceilings/ceilingstest"
	"gpt2scope/cmd/infer/cli"
	"gpt2scope/traces/tables"
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
	os.Exit(ceilingstest.Main(m))
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
	for _, fact := range facts {
		if !strings.Contains(stderr, fact) {
			t.Errorf("stderr does not say %q: %q", fact, stderr)
		}
	}
}

// TestUsage is about mistakes in how the program is called: status 2, and the
// hint that helps.
func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args  string // fields; '' is an empty one
		facts []string
	}{
		// Commands.
		{"inffo", []string{`no command "inffo"`, "infer info"}},
		{"evall --text x", []string{"infer eval"}},
		{"tokenise -p x", []string{"infer tokenize"}},
		{"EVAL", []string{"infer eval"}},
		{"generate -p x", []string{"bench, completion, devices, dump, eval, export, info, layers, learn, tasks, tokenize", "-p"}},
		{"ROMEO: and", []string{"-p 'ROMEO: and'"}},
		{"help nothing", []string{`"nothing"`}},
		{"info eval", []string{`"eval"`}},
		{"eval play.txt", []string{"--text play.txt"}},
		{"tokenize word", []string{"-p word"}},
		{"-m " + tiny + " word", []string{`"word"`, "-p word"}},
		{"-m " + tiny + " evall --text x", []string{"--text", "infer eval"}},

		// Flags.
		{"-prompt x", []string{"-prompt has one dash", "--prompt"}},
		{"-p x -temp=0.5", []string{"--temp"}},
		{"info -layers 2", []string{"--layers"}},
		{"-help", []string{"--help"}},
		{"-version", []string{"--version"}},
		{"--promt x", []string{"--promt", "--prompt"}},
		{"--zebra", []string{"--zebra", "infer help flags"}},
		{"eval --zebra", []string{"infer eval --help"}},
		{"info --temp 1", []string{"infer info", "--temp", "'infer' has it"}},
		{"-z", []string{"-z"}},
		{"-p", []string{"-p needs a value"}},
		{"--model", []string{"--model needs a value"}},

		// Values.
		{"-m ''", []string{"--model"}},
		{"-n 0", []string{"--tokens 0", "1"}},
		{"-n -3", []string{"--tokens -3"}},
		{"-n 1e3", []string{"--tokens 1e3", "whole number"}},
		{"-n 99999999999999999999", []string{"--tokens"}},
		{"-s -1", []string{"--seed -1", "0 or more"}},
		{"-s 18446744073709551616", []string{"--seed 18446744073709551616", "from 0 to 18446744073709551615"}},
		{"--top-k 9223372036854775808", []string{"--top-k 9223372036854775808", "to 9223372036854775807"}},
		{"--temp 1e999", []string{"--temp 1e999", "to 1.8e+308"}},
		{"info --fused false", []string{"--fused false", "takes a value only after =", "write --fused=false"}},
		{"--profile cake", []string{`"cake"`}},
		{"completion", []string{"bash, fish, powershell, zsh", "infer completion --help"}},
		{"completion tcsh", []string{"'infer completion tcsh'", "commands are bash, fish, powershell, zsh"}},
		{"-m random:bogus", []string{"--model: ", "random:bogus", "gpt2-medium"}},
		{"info -m random:gpt3", []string{`--model: random:gpt3: "gpt3" is not understood`}},
		{"layers", []string{"give the directory to write: --out DIR"}},
		{"info --json true", []string{"write --json=true"}},
		{"--temp -0.1", []string{"--temp -0.1", "greedy"}},
		{"--temp hot", []string{"--temp hot", "number"}},
		{"--temp NaN", []string{"--temp NaN"}},
		{"--temp Inf", []string{"--temp +Inf"}},
		{"--top-k -1", []string{"--top-k -1"}},
		{"--top-p 1.1", []string{"--top-p 1.1", "0 to 1"}},
		{"--top-p NaN", []string{"--top-p NaN"}},
		{"-i --json", []string{"--interactive", "--json"}},
		{"-i --profile", []string{"--interactive", "--profile"}},
		{"-i -f -", []string{"--interactive", "--file -"}},
		{"--min-p 1.1", []string{"--min-p 1.1", "0 to 1"}},
		{"--repeat-penalty 0", []string{"--repeat-penalty 0", "positive"}},
		{"--repeat-penalty 1.1 --repeat-last-n -2", []string{"--repeat-last-n -2", "-1"}},
		{"--repeat-last-n 32", []string{"--repeat-penalty"}},
		{"--logprobs=-1", []string{"--logprobs -1", "whole number"}},
		{"--logprobs ten", []string{`"ten"`}},
		{"--stop ''", []string{"--stop"}},
		{"--layers 0", []string{"--layers 0", "all"}},
		{"--layers -1", []string{"--layers -1"}},
		{"--layers some", []string{"--layers some", "all"}},
		{"--device gpu", []string{"--device gpu", "reference", "cuda:N"}},
		{"--device cpu:1", []string{"--device cpu:1"}},
		{"--device cuda:x", []string{"--device cuda:x"}},
		{"--device cuda:-1", []string{"--device cuda:-1"}},
		{"--dtype FLOAT16", []string{"--dtype FLOAT16", "f32, bf16 or q8"}},
		{"--dtype Q8_0 --device cuda", []string{"--dtype q8 is for the CPU"}},
		{"--dtype f16", []string{"--dtype f16", "f32, bf16 or q8"}},
		{"bench kernel", []string{"name one stage", "infer bench kernel attn.sdpa"}},
		{"bench kernel attn.spda", []string{"no stage attn.spda", "attn.sdpa", "lm_head"}},
		{"bench kernal", []string{`"kernal"`, "did you mean 'infer bench kernel'"}},
		{"--logprobs=-1", []string{"--logprobs -1: it must be a whole number, 0 or more"}},
		{"--mode fast", []string{"--mode fast", "eager, graph or persistent"}},
		{"--mode eager --device cpu", []string{"--mode is for a GPU", "--device cuda"}},
		{"--tune --device reference", []string{"--tune is for a GPU"}},
		{"--variant attn.sdpa", []string{"--variant attn.sdpa", "STAGE=NAME"}},
		{"--variant =naive", []string{"--variant =naive", "STAGE=NAME"}},
		{"--dtype ''", []string{"--dtype ''", "f32, bf16 or q8"}},
		{"--dtype q8 --device reference", []string{"--dtype q8", "float64"}},
		{"--dtype q8 --device cuda", []string{"--dtype q8 is for the CPU", "--dtype bf16"}},
		{"--dtype q8 --device cuda:1", []string{"--dtype q8 is for the CPU", "--device cpu"}},
		{"--dtype q8 --mode graph", []string{"--mode is for a GPU", "8-bit"}},
		{"export --out x --dtype q8", []string{"--dtype q8", "f32 or bf16"}},
		{"--device reference --dtype bf16", []string{"--dtype bf16", "reference", "float64"}},
		{"-t -1", []string{"--threads -1"}},
		{"-t 1000000", []string{"--threads 1000000", "256"}},
		{"-c 0", []string{"--context 0"}},
		{"-c -5", []string{"--context -5"}},
		{"--chunk -1", []string{"--chunk -1"}},
		{"-p x -f y", []string{"--prompt", "--file", "--ids"}},
		{"-p x --ids 1", []string{"--prompt", "--file", "--ids"}},
		{"-f ''", []string{"--file"}},
		{"-m " + tiny + " --ids 1,two,3", []string{"--ids", `"two"`, "number 2"}},
		{"-m " + tiny + " --ids ,", []string{"--ids", "no token ids"}},
		{"-m " + tiny + " --ids 99999999999999", []string{"--ids", "99999999999999"}},
		{"info --batch 0", []string{"--batch 0"}},
		{"info --batch 99999999999", []string{"--batch 99999999999", "1048576"}},
		{"info --prompt-len 0", []string{"--prompt-len 0"}},
		{"info --past -1", []string{"--past -1"}},
		{"eval", []string{"--text"}},
		{"eval --text x --window -1", []string{"--window -1"}},
		{"eval --text x --stride -1", []string{"--stride -1"}},
		{"dump --out x.npy", []string{"--stage"}},
		{"dump --stage ln_f", []string{"--out"}},
		{"export", []string{"--out"}},
		{"bench --phase all", []string{"--phase all", "prefill or decode"}},
		{"bench --logits some", []string{"--logits some", "all or last"}},
		{"bench --batch 0", []string{"--batch 0"}},
		{"bench --repeat 0", []string{"--repeat 0"}},
		{"bench --repeat 99999999999", []string{"--repeat 99999999999"}},
		{"bench --prompt-len 0", []string{"--prompt-len 0"}},
		{"bench --past -1", []string{"--past -1"}},
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

// A shell completes the values of flags, each of which the flag takes.
func TestCompletion(t *testing.T) {
	for line, want := range map[string]string{
		"--device ": "auto cpu cuda reference", "--dtype ": "bf16 f32 q8", "info --mode ": "auto eager graph persistent", "bench --phase ": "decode prefill", "bench --logits ": "all last",
		"--layers ": "all", "bench --recorder ": "cupti host stamps", "--recorder ": "auto cupti stamps", "bench --output ": "csv json md", "export --dtype ": "bf16 f32", "bench inside --by ": "sm stage",
		"trace show x --by ": strings.Join(cli.Texts(tables.Bys), " "), "trace diff x y --by ": "folded kernel layer op stage", "info --by ": "folded stage", "tasks simulate --memory ": "pageable pinned resident", "tasks run --held-out ": "nothing sizes task",
		"--model ": "random:gpt2 random:gpt2-large random:gpt2-medium random:gpt2-xl", "dump --stage ": "wte+wpe h.0.ln_1 h.0.attn.c_attn h.0.attn.sdpa h.0.attn.c_proj h.0.residual_1 h.0.ln_2 h.0.mlp.c_fc h.0.mlp.gelu h.0.mlp.c_proj h.0.residual_2 ln_f lm_head", "tasks bench --tasks ": "vector.add vector.square reduce.sum matmul gpt2.prefill gpt2.decode gpt2.generate", "trace show x --format ": "csv json table", "tok": "tokenize", "bench kernel ": "wte+wpe ln_1 attn.c_attn attn.sdpa attn.c_proj residual_1 ln_2 mlp.c_fc mlp.gelu mlp.c_proj residual_2 ln_f lm_head sample", "export --fo": "--force",
	} {
		words := strings.Split(line, " ")
		var got []string
		for l := range strings.Lines(mustInfer(t, append([]string{"__complete"}, words...)...).stdout) {
			if word, _, _ := strings.Cut(strings.TrimSpace(l), "\t"); !strings.HasPrefix(word, ":") {
				got = append(got, word)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q is completed by %q; want %q", line, got, want)
		}
		if len(words) < 2 || !strings.HasPrefix(words[len(words)-2], "--") { // no value of a flag
			continue
		}
		for _, value := range got {
			args := append(slices.Clone(words[:len(words)-1]), value, "-m", "no/such/model")
			if e := infer(t, args...); strings.Contains(e.stderr, "it must be") {
				t.Errorf("%q: %s", args, e.stderr)
			}
		}
	}
}

// Each flag of model and device is listed and taken by the commands in which it does something,
// and refused by others.
func TestFlagsThatDoNothing(t *testing.T) {
	values := map[string]string{"model": tiny, "layers": "1", "device": "cpu", "dtype": "bf16", "mode": "auto", "variant": "a=b", "threads": "1", "context": "9", "chunk": "2"}
	for command, used := range map[string]string{
		"tokenize -p x": "model quiet", "devices": "quiet", "bench ceilings": "device threads quiet", "trace check --infer no/such/file": "model quiet",
		"export -o no/such/": "model layers dtype quiet", "help": "", "completion bash": "",
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

// TestHelp checks that every command's help has its parts, and every flag a
// description with the name of its value.
func TestHelp(t *testing.T) {
	root := newRoot(new(cli.ModelFlags))
	for _, c := range cli.AllCommands(root) {
		if c.Name() == "help" {
			continue
		}
		args := append(strings.Fields(c.CommandPath())[1:], "--help")
		e := mustInfer(t, args...)
		if e.stderr != "" {
			t.Errorf("%s: stderr has %q", c.CommandPath(), e.stderr)
		}
		text := e.stdout
		if c == root {
			if n := strings.Count(text, "\n"); n > 70 || !strings.Contains(text, "'infer help flags'") {
				t.Errorf("the help of the program has %d lines, which is more than somebody reads who wants -p; or no word of the other flags:\n%s", n, text)
			}
			text += mustInfer(t, "help", "flags").stdout
			c.Flags().VisitAll(func(f *pflag.Flag) {
				if !f.Hidden && !strings.Contains(text, "--"+f.Name) {
					t.Errorf("'infer help flags' lacks --%s", f.Name)
				}
			})
		}
		if heading := strings.Contains(text, "\nModel and device:\n"); heading != (cli.Uses(c, "model") || cli.Uses(c, "device")) {
			t.Errorf("%s: a heading of model and device: %v", c.CommandPath(), heading)
		}
		if strings.Contains(text, "(default -1)") || strings.Contains(text, "(default )") {
			t.Errorf("%s: the help has a default that stands for another:\n%s", c.CommandPath(), text)
		}
		for _, part := range []string{"Usage:\n  infer", "\nExamples:\n  infer", "\nModel and device:\n  -m, --model", "--quiet", "--help"} {
			if strings.Contains(part, "--model") && !cli.Uses(c, "model") || part == "--quiet" && !cli.Uses(c, "quiet") || part == "\nExamples:\n  infer" && c.HasParent() && strings.Contains(c.CommandPath(), "completion") {
				continue
			}
			if !strings.Contains(text, part) {
				t.Errorf("%s: the help lacks %q", c.CommandPath(), part)
			}
		}
		for _, line := range strings.Split(text, "\n") {
			if len(line) > 100 {
				t.Errorf("%s: the help has a line of %d characters: %s", c.CommandPath(), len(line), line)
			}
			for _, kind := range []string{" string ", " int ", " uint ", " float ", "stringArray"} {
				if strings.HasPrefix(strings.TrimSpace(line), "-") && strings.Contains(line, kind+"  ") {
					t.Errorf("%s: a value has no name: %s", c.CommandPath(), line)
				}
			}
		}
		if help := mustInfer(t, append([]string{"help"}, args[:len(args)-1]...)...).stdout; help != e.stdout {
			t.Errorf("'help %s' is not '%s --help'", c.Name(), c.Name())
		}
	}
}

// TestDistance compares with distances known from the literature.
func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"kitten", "sitting", 3}, {"saturday", "sunday", 3}, {"temp", "tmep", 2}, {"same", "same", 0}} {
		if got := cli.Distance(c.a, c.b); got != c.want {
			t.Errorf("distance(%q, %q) = %d, not %d", c.a, c.b, got, c.want)
		}
		if got := cli.Distance(c.b, c.a); got != c.want {
			t.Errorf("distance(%q, %q) = %d, not %d", c.b, c.a, got, c.want)
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
	if err := os.WriteFile(text, []byte("some text"), 0o666); err != nil {
		t.Fatal(err)
	}
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
