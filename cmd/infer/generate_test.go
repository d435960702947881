package main

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/gpt2"
	"gpt2scope/internal/require"
)

// parsed is what --json promises.
type parsed = result

func parse(t *testing.T, text string) parsed {
	t.Helper()
	var p parsed
	decode(t, text, &p)
	return p
}

func generateJSON(t *testing.T, args ...string) parsed {
	t.Helper()
	e := mustInfer(t, append(args, "--json")...)
	if e.stderr != "" {
		t.Errorf("stderr has %q", e.stderr)
	}
	return parse(t, e.stdout)
}

// TestEvaluateOnly: -n 0 evaluates the prompt and makes no token.
func TestEvaluateOnly(t *testing.T) {
	p := generateJSON(t, "-m", tiny, "-p", "ROMEO:", "-n", "0")
	if len(p.IDs) != 0 || p.Text == nil || *p.Text != "" || p.Finish != "length" || p.Timings.PrefillTokens != 6 || p.Timings.DecodeTokens != 0 {
		t.Errorf("%+v", p)
	}
	if e := mustInfer(t, "-m", tiny, "-p", "ROMEO:", "-n", "0"); e.stdout != "" || !strings.Contains(e.stderr, "prefill 6 tokens") {
		t.Errorf("%+v", e)
	}
}

// TestPrompts: each line of a file is a run by itself.
func TestPrompts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "prompts")
	text := "\"ROMEO:\"\n\n{\"prompt\": \"a\\nb\"}\r\n{\"ids\": [1,2,3]}\n\"\""
	single := [][]string{{"-p", "ROMEO:"}, {"-p", "a\nb"}, {"--ids", "1,2,3"}, {"-p", ""}}
	for i := range 14 { // more than decode together
		ids := strings.Repeat(",7", i)
		text += fmt.Sprintf("\n{\"ids\": [%d%s]}", i, ids)
		single = append(single, []string{"--ids", fmt.Sprint(i) + ids})
	}
	writeFile(t, file, text)
	args := []string{"-m", tiny, "-n", "60", "-s", "4", "--json"}
	e := mustInfer(t, append(args, "--prompts", file)...)
	lines := strings.Split(strings.TrimSuffix(e.stdout, "\n"), "\n")
	if len(lines) != len(single) {
		t.Fatalf("%d lines:\n%s", len(lines), e.stdout)
	}
	for i, line := range lines {
		got, want := parse(t, line), generateJSON(t, append(args[:6:6], single[i]...)...)
		if !slices.Equal(got.Prompt, want.Prompt) || !slices.Equal(got.IDs, want.IDs) || *got.Text != *want.Text || got.Finish != want.Finish ||
			got.Timings.PrefillTokens != want.Timings.PrefillTokens {
			t.Errorf("line %d is %+v, alone %+v", i+1, got, want)
		}
	}
	for text, fact := range map[string]string{"\"a\"\nx\n": "line 2", `{"ids": [1], "prompt": "x"}`: "line 1", `{"text": "x"}`: "{\"prompt\": TEXT}", `"a"}`: "line 1", "\n": "no prompts",
		`{"ids": [257]}`: "257", `"` + strings.Repeat("x", 65) + `"`: "65 tokens"} {
		writeFile(t, file, text)
		checkFailure(t, infer(t, append(args, "--prompts", file)...), exitFailure, "--prompts", fact)
	}
	writeFile(t, file, "\"ROMEO:\"\n\"JULIET:\"")
	if e := mustInfer(t, "--layers", "all", "-n", "60", "-s", "4", "--device", "cpu", "--json", "--prompts", file); strings.Contains(e.stdout, "speculation") { // they decode together
		t.Error(e.stdout)
	}
	checkFailure(t, infer(t, "-m", tiny, "--prompts", file), exitUsage, "--json")
	checkFailure(t, infer(t, append(args, "--prompts", file, "-p", "x")...), exitUsage, "--prompt")
}

// TestEscape: a backslash in a text is one, unless --escape gives it its meaning in Go.
func TestEscape(t *testing.T) {
	for text, want := range map[string]string{`a\n`: "a\n", `\\n\t"'`: "\\n\t\"'", `\xff\u00e9é` + "\xff": "\xfféé\xff", ``: ""} {
		got := mustInfer(t, "tokenize", "-m", tiny, "-p", text, "--escape").stdout
		if plain := mustInfer(t, "tokenize", "-m", tiny, "-p", want).stdout; got != plain {
			t.Errorf("%q is\n%s, want\n%s", text, got, plain)
		}
	}
	if n := strings.Count(mustInfer(t, "tokenize", "-m", tiny, "-p", `\n`).stdout, "\n"); n != 2 {
		t.Errorf("without --escape, a backslash and n are %d tokens", n)
	}
	for _, text := range []string{`\`, `\q`, `\x1`, `\"`} {
		checkFailure(t, infer(t, "tokenize", "-m", tiny, "-p", text, "--escape"), exitUsage, "--prompt", "--escape")
		checkFailure(t, infer(t, "-m", tiny, "-p", "x", "--stop", text, "--escape"), exitUsage, "--stop", "--escape")
	}
}

// generation is a run whose text must be the same each time.
var generation = []string{"-m", tiny, "-p", "ROMEO:", "-n", "40", "-s", "7", "--ignore-eos"}

func with(args []string, more ...string) []string { return append(slices.Clone(args), more...) }

// TestJSON checks every field against the run that it describes.
func TestJSON(t *testing.T) {
	p := generateJSON(t, with(generation, "--logprobs", "--top-p", "0.9", "--stop", "never to be found")...)
	if want := []int32{49, 46, 44, 36, 46, 25}; !slices.Equal(p.Prompt, want) { // GPT-2's ids of these bytes
		t.Errorf("prompt_ids are %v, not %v", p.Prompt, want)
	}
	if p.Text == nil || len(p.IDs) != 40 || len(p.LogProbs) != 40 || p.Finish != "length" || p.Seed != 7 || p.Shifts != 0 {
		t.Errorf("%+v", p)
	}
	for i, lp := range p.LogProbs {
		if !(lp < 0 && float64(lp) > math.Log(1e-6)) {
			t.Errorf("log-probability %d is %g", i, lp)
		}
	}
	if s := p.Sampling; s.Temperature != 0.8 || s.TopK != 40 || s.TopP != 0.9 || !slices.Equal(s.Stop, []string{"never to be found"}) || !s.IgnoreEOS {
		t.Errorf("sampling is %+v", s)
	}
	if s := p.Setting; s.Model != tiny || s.Device != "cpu" || s.DType != "f32" || s.Layers != 2 || s.OfTotal != 2 || s.Threads < 1 || s.Context != 64 || s.Version == "" {
		t.Errorf("configuration is %+v", s)
	}
	if m := p.Timings; m.PrefillTokens != 6 || m.DecodeTokens != 39 || !(m.FirstToken > 0 && m.Prefill > 0 && m.PrefillPerSecond > 0 && m.DecodePerToken > 0) {
		t.Errorf("timings are %+v", m)
	}
	if p := generateJSON(t, "-m", tiny, "-c", "16", "-n", "50", "--ignore-eos"); p.Shifts < 4 || len(p.Prompt) != 1 || p.Prompt[0] != 256 {
		t.Errorf("%d shifts, prompt_ids %v", p.Shifts, p.Prompt)
	}
	if p := generateJSON(t, "-m", goldenModel, "--ids", "1,2", "-n", "3"); p.Text != nil {
		t.Errorf("a model without a tokenizer gives the text %q", *p.Text)
	}
}

// TestSpeculate: drafts change no token, and are counted; their passes are in the table.
func TestSpeculate(t *testing.T) {
	args := []string{"-p", "ROMEO:", "-n", "30", "--temp", "0", "--device", "cpu", "--layers", "3", "--json"}
	plain, drafted := generateJSON(t, with(args, "--speculate", "off")...), generateJSON(t, with(args, "--speculate", "exits=1,2")...)
	if chosen := generateJSON(t, args...); !slices.Equal(plain.IDs, chosen.IDs) || chosen.Drafts == nil || chosen.Drafts.How != "auto" {
		t.Errorf("by default %v, %+v\nwithout drafts %v", chosen.IDs, chosen.Drafts, plain.IDs)
	}
	if d := drafted.Drafts; !slices.Equal(plain.IDs, drafted.IDs) || plain.Drafts != nil || d == nil ||
		d.How != "exits=1,2" || d.Passes == 0 || d.Accepted+d.Dropped != d.Drafted || d.Drafted > 2*d.Passes || d.TokensPerPass < 1.5 {
		t.Errorf("with drafts %v, %+v\nwithout %v, %+v", drafted.IDs, d, plain.IDs, plain.Drafts)
	}
	r := infer(t, with(args[:len(args)-1], "--speculate", "exits=1,2", "--profile=phase", "--no-baseline")...)
	contains(t, r.stderr, " draft steps, ", "verify steps of 3 tokens", "\ndrafts: ", " accepted, ",
		"  verify step\n")
	checkFailure(t, infer(t, with(args, "--speculate", "exits=3,1")...), exitFailure,
		"speculation exits=3,1: a run of 3 layers")
	checkFailure(t, infer(t, with(args, "--speculate", "on")...), exitUsage, "--speculate", "must be off, exits")
}

// TestTextAndIDs says that the text is that of the ids, whatever way they are shown.
func TestTextAndIDs(t *testing.T) {
	model := require.Value(gpt2.Random(tiny))(t)
	defer model.Close()
	want := string(model.Tokenizer.Decode(generateJSON(t, generation...).IDs))
	if got := mustInfer(t, generation...).stdout; got == "" || !strings.HasPrefix(want, got) || len(want)-len(got) >= utf8.UTFMax {
		t.Errorf("the text is %q, not %q", got, want)
	}
	ids := generateJSON(t, "-m", goldenModel, "--ids", "1,2", "-n", "12", "-s", "1", "--ignore-eos").IDs
	want = strings.Trim(strings.ReplaceAll(fmt.Sprint(ids), " ", ","), "[]")
	if got := mustInfer(t, "-m", goldenModel, "--ids", "1,2", "-n", "12", "-s", "1", "--ignore-eos").stdout; got != want {
		t.Errorf("without a tokenizer the output is %q, not %q", got, want)
	}
}

// TestSeed says that a seed gives one text, and another seed another.
func TestSeed(t *testing.T) {
	ids := func(args ...string) []int32 { return generateJSON(t, append(generation[:4:4], args...)...).IDs }
	first := ids("-s", "7", "--ignore-eos", "-n", "40")
	if again := ids("-s", "7", "--ignore-eos", "-n", "40"); !slices.Equal(first, again) {
		t.Errorf("seed 7 gives %v, then %v", first, again)
	}
	if other := ids("-s", "8", "--ignore-eos", "-n", "40"); slices.Equal(first, other) {
		t.Error("seeds 7 and 8 give the same")
	}
	if greedy, other := ids("-s", "7", "--temp", "0", "-n", "20"), ids("-s", "8", "--temp", "0", "-n", "20"); !slices.Equal(greedy, other) {
		t.Error("greedy text depends on the seed")
	}
	a, b := generateJSON(t, "-m", tiny, "-n", "1"), generateJSON(t, "-m", tiny, "-n", "1")
	if a.Seed == b.Seed {
		t.Errorf("two runs without --seed drew the same, %d", a.Seed)
	}
	again := generateJSON(t, "-m", tiny, "-n", "30", "-s", fmt.Sprint(a.Seed))
	if !slices.Equal(again.IDs[:1], a.IDs) {
		t.Errorf("the seed %d that was printed gives %v, not %v", a.Seed, again.IDs[:1], a.IDs)
	}
}

// TestStop ends the text before a part of it, wherever that is.
func TestStop(t *testing.T) {
	text := mustInfer(t, with(generation, "--quiet")...).stdout
	for at := 1; at < len(text)-3; at++ {
		stop := text[at : at+3]
		if p := generateJSON(t, with(generation, "--stop", "not in it", "--stop", stop)...); p.Finish != "stop" {
			t.Errorf("--stop %q: finish is %q", stop, p.Finish)
		}
		if e := mustInfer(t, with(generation, "--stop", stop, "--quiet")...); e.stdout != text[:strings.Index(text, stop)] {
			t.Errorf("--stop %q gives %q of %q", stop, e.stdout, text)
		}
	}
}

// closing is the form of the closing line.
var closing = regexp.MustCompile(`^cpu \(\d+ threads?\), (f32|bf16|q8), layers (\d+) of (\d+), seed (\d+) \| ` +
	`prefill [\d,]+ tokens?, [\d.]+ [um]s, \d+ tokens/s \| decode [\d,]+ tokens?, [\d.]+ ms/token, \d+ tokens/s \| first token after \d+ ms( \| threads waited .*)?\n$`)

// TestBeyondTheContext says once that the context was full.
func TestBeyondTheContext(t *testing.T) {
	e := mustInfer(t, "-m", tiny, "-c", "16", "-n", "100", "-s", "1", "--ignore-eos")
	lines := strings.SplitAfter(strings.TrimSuffix(e.stderr, "\n"), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "context of 16 tokens was full") || !strings.Contains(lines[0], "last half") {
		t.Errorf("stderr has %q", e.stderr)
	}
	if p := generateJSON(t, "-m", tiny, "-c", "16", "-n", "100", "-s", "1", "--ignore-eos"); len(p.IDs) != 100 {
		t.Errorf("%d tokens were made", len(p.IDs))
	}
	if e := mustInfer(t, "-m", tiny, "-c", "1", "-n", "5", "-s", "1", "--ignore-eos"); e.stdout == "" {
		t.Error("a context of one token gives no text")
	}
}

// TestUntilEndOfText: -n -1 goes on until the model ends the text, over any number of contexts.
func TestUntilEndOfText(t *testing.T) {
	for seed := range 3 {
		p := generateJSON(t, "-m", tiny, "-c", "16", "-n", "-1", "-s", fmt.Sprint(seed), "--temp", "3")
		if p.Finish != "end_of_text" || p.IDs[len(p.IDs)-1] != 256 || slices.Index(p.IDs, 256) != len(p.IDs)-1 {
			t.Errorf("seed %d: it ended with %s after %d tokens, end of text at %d", seed, p.Finish, len(p.IDs), slices.Index(p.IDs, 256))
		}
		if limited := generateJSON(t, "-m", tiny, "-c", "16", "-n", fmt.Sprint(len(p.IDs)), "-s", fmt.Sprint(seed), "--temp", "3"); limited.Finish != "length" || !slices.Equal(limited.IDs, p.IDs) {
			t.Errorf("seed %d: with -n %d it ended with %s", seed, len(p.IDs), limited.Finish)
		}
	}
}

// cancelling cancels a context when it has been written to several times.
type cancelling struct {
	strings.Builder
	left   int
	cancel func()
}

func (c *cancelling) Write(p []byte) (int, error) {
	if c.left--; c.left == 0 {
		c.cancel()
	}
	return c.Builder.Write(p)
}

// TestInterruptKeepsText interrupts a generation at a known place: what was made
// so far is there, and is the beginning of the whole text.
func TestInterruptKeepsText(t *testing.T) {
	whole := mustInfer(t, with(generation, "--quiet")...).stdout
	for writes := 1; writes < 12; writes++ {
		ctx, cancel := context.WithCancelCause(context.Background())
		stdout := &cancelling{left: writes, cancel: func() { cancel(cli.Interruption{Signal: 2}) }}
		var stderr strings.Builder
		status := run(ctx, new(cli.ModelFlags), generation, strings.NewReader(""), stdout, &stderr)
		if text := stdout.String(); status != 130 || !strings.HasPrefix(whole, text) || text == "" || text == whole {
			t.Errorf("status %d, text %q of %q", status, text, whole)
		}
		if s := stderr.String(); strings.Count(s, "\n") != 1 || !strings.Contains(s, "seed 7 |") || !strings.HasSuffix(s, "| interrupted\n") {
			t.Errorf("the closing line is %q", s)
		}
	}
}
