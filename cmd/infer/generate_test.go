package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/cmd/infer/trace"
	"gpt2scope/gpt2"
)

// parsed is what --json promises.
type parsed struct {
	Prompt   []int32   `json:"prompt_ids"`
	Text     *string   `json:"text"`
	IDs      []int32   `json:"ids"`
	LogProbs []float64 `json:"logprobs"`
	Top      [][]struct {
		ID      int32   `json:"id"`
		Text    *string `json:"text"`
		LogProb float64 `json:"logprob"`
	} `json:"top_logprobs"`
	Finish   string  `json:"finish"`
	Seed     *uint64 `json:"seed"`
	Sampling struct {
		Temp      float64  `json:"temp"`
		TopK      int      `json:"top_k"`
		TopP      float64  `json:"top_p"`
		MinP      float64  `json:"min_p"`
		Penalty   float64  `json:"repeat_penalty"`
		Last      int      `json:"repeat_last_n"`
		Stop      []string `json:"stop"`
		IgnoreEOS bool     `json:"ignore_eos"`
	} `json:"sampling"`
	Timings map[string]float64 `json:"timings"`

	Loading       []loadJSON `json:"loading"` // if it takes long enough to be told
	WarmUpLoading []loadJSON `json:"warm_up_loading"`

	Setting cli.Setting      `json:"configuration"`
	Profile *trace.TableJSON `json:"profile"`
	Shifts  int              `json:"context_shifts"`
}

func parse(t *testing.T, text string) parsed {
	t.Helper()
	var p parsed
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		t.Fatalf("not the JSON that was promised: %v\n%s", err, text)
	}
	if d.More() {
		t.Fatalf("more than one JSON value:\n%s", text)
	}
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

// generation is a run whose text must be the same each time.
var generation = []string{"-m", tiny, "-p", "ROMEO:", "-n", "40", "-s", "7", "--ignore-eos"}

func with(args []string, more ...string) []string { return append(slices.Clone(args), more...) }

// TestJSON checks every field against the run that it describes.
func TestJSON(t *testing.T) {
	p := generateJSON(t, with(generation, "--logprobs", "--top-p", "0.9", "--stop", "never to be found")...)
	if want := []int32{49, 46, 44, 36, 46, 25}; !slices.Equal(p.Prompt, want) { // GPT-2's ids of these bytes
		t.Errorf("prompt_ids are %v, not %v", p.Prompt, want)
	}
	if p.Text == nil || len(p.IDs) != 40 || len(p.LogProbs) != 40 || p.Finish != "length" || p.Seed == nil || *p.Seed != 7 || p.Shifts != 0 {
		t.Errorf("%+v", p)
	}
	for i, lp := range p.LogProbs {
		if !(lp < 0 && lp > math.Log(1e-6)) {
			t.Errorf("log-probability %d is %g", i, lp)
		}
	}
	if s := p.Sampling; s.Temp != 0.8 || s.TopK != 40 || s.TopP != 0.9 || !slices.Equal(s.Stop, []string{"never to be found"}) || !s.IgnoreEOS {
		t.Errorf("sampling is %+v", s)
	}
	if s := p.Setting; s.Model != tiny || s.Device != "cpu" || s.DType != "f32" || s.Layers != 2 || s.OfTotal != 2 || s.Threads < 1 || s.Context != 64 || s.Version == "" {
		t.Errorf("configuration is %+v", s)
	}
	for _, name := range []string{"first_token_ms", "prefill_ms", "prefill_tokens_per_s", "decode_ms_per_token", "decode_tokens_per_s"} {
		if !(p.Timings[name] > 0) {
			t.Errorf("timing %s is %g", name, p.Timings[name])
		}
	}
	if p.Timings["prefill_tokens"] != 6 || p.Timings["decode_tokens"] != 39 {
		t.Errorf("timings are %v", p.Timings)
	}
	if p := generateJSON(t, "-m", tiny, "-c", "16", "-n", "50", "--ignore-eos"); p.Shifts < 4 || len(p.Prompt) != 1 || p.Prompt[0] != 256 {
		t.Errorf("%d shifts, prompt_ids %v", p.Shifts, p.Prompt)
	}
	if p := generateJSON(t, "-m", goldenModel, "--ids", "1,2", "-n", "3"); p.Text != nil {
		t.Errorf("a model without a tokenizer gives the text %q", *p.Text)
	}
}

// TestTextAndIDs says that the text is that of the ids, whatever way they are shown.
func TestTextAndIDs(t *testing.T) {
	model, err := gpt2.Random(tiny)
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	cut := 0 // runs that end within a character
	for n := 1; n <= 40; n++ {
		args := with(generation[:4], "-n", fmt.Sprint(n), "-s", "7", "--ignore-eos")
		want := string(model.Tokenizer.Decode(generateJSON(t, args...).IDs))
		whole := len(want)
		for k := 1; k < utf8.UTFMax && k <= len(want); k++ {
			if utf8.RuneStart(want[len(want)-k]) {
				if !utf8.FullRuneInString(want[len(want)-k:]) {
					whole -= k
					cut++
				}
				break
			}
		}
		if got := mustInfer(t, args...).stdout; got != want[:whole] {
			t.Errorf("%d tokens: the text is %q, not %q", n, got, want[:whole])
		}
	}
	if cut == 0 {
		t.Error("no run ended within a character, so this tested nothing")
	}
	ids := generateJSON(t, "-m", goldenModel, "--ids", "1,2", "-n", "12", "-s", "1", "--ignore-eos").IDs
	want := strings.Trim(strings.ReplaceAll(fmt.Sprint(ids), " ", ","), "[]")
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
	if *a.Seed == *b.Seed {
		t.Errorf("two runs without --seed drew the same, %d", *a.Seed)
	}
	again := generateJSON(t, "-m", tiny, "-n", "30", "-s", fmt.Sprint(*a.Seed))
	if !slices.Equal(again.IDs[:1], a.IDs) {
		t.Errorf("the seed %d that was printed gives %v, not %v", *a.Seed, again.IDs[:1], a.IDs)
	}
}

// TestWaysToSayIt runs the same generation in several ways.
func TestWaysToSayIt(t *testing.T) {
	want := mustInfer(t, with(generation, "--quiet")...)
	if want.stdout == "" || want.stderr != "" {
		t.Fatalf("--quiet gives %+v", want)
	}
	file := filepath.Join(t.TempDir(), "prompt")
	if err := os.WriteFile(file, []byte("ROMEO:"), 0o666); err != nil {
		t.Fatal(err)
	}
	rest := []string{"-n", "40", "-s", "7", "--ignore-eos", "--quiet"}
	for name, args := range map[string][]string{
		"long flags":     {"--model", tiny, "--prompt", "ROMEO:"},
		"=":              {"--model=" + tiny, "--prompt=ROMEO:"},
		"a file":         {"-m", tiny, "-f", file},
		"standard input": {"-m", tiny, "-f", "-"},
		"ids":            {"-m", tiny, "--ids", "49,46,44,36,46,25"},
		"ids with space": {"-m", tiny, "--ids", " 49 46 44\n36,46, 25 "},
		"chunks":         {"-m", tiny, "-p", "ROMEO:", "--chunk", "2"},
		"one thread":     {"-m", tiny, "-p", "ROMEO:", "-t", "1"},
		"all layers":     {"-m", tiny, "-p", "ROMEO:", "--layers", "all"},
		"reference":      {"-m", tiny, "-p", "ROMEO:", "--device", "reference"},
	} {
		if e := inferWith(t, context.Background(), "ROMEO:", with(args, rest...)...); e != want {
			t.Errorf("%s: %+v, not %+v", name, e, want)
		}
	}
	for name, args := range map[string][]string{
		"one layer":         with(generation, "--layers", "1", "--quiet"),
		"another prompt":    with(generation, "-p", "JULIET:", "--quiet"),
		"another heat":      with(generation, "--temp", "2", "--quiet"),
		"fewer candidates":  with(generation, "--top-k", "3", "--quiet"),
		"a smaller nucleus": with(generation, "--top-p", "0.1", "--quiet"),
		"no prompt":         append([]string{"-m", tiny}, rest...),
	} {
		if e := mustInfer(t, args...); e.stdout == want.stdout {
			t.Errorf("%s changes nothing", name)
		}
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

// TestEndOfText ends after the token of that name, which is not part of the text.
func TestEndOfText(t *testing.T) {
	args := []string{"-m", tiny, "-s", "1", "-n", "100000"}
	p := generateJSON(t, args...)
	if n := len(p.IDs); n == 100000 || p.IDs[n-1] != 256 || slices.Contains(p.IDs[:n-1], 256) || p.Finish != "end_of_text" {
		t.Errorf("%d ids, finish %s", n, p.Finish)
	}
	if strings.Contains(*p.Text, "endoftext") {
		t.Errorf("the text is %q", *p.Text)
	}
}

// closing is the form of the closing line.
var closing = regexp.MustCompile(`^cpu \(\d+ threads?\), (f32|bf16|q8), layers (\d+) of (\d+), seed (\d+) \| ` +
	`prefill [\d,]+ tokens?, [\d.]+ [um]s, \d+ tokens/s \| decode [\d,]+ tokens?, [\d.]+ ms/token, \d+ tokens/s \| first token after \d+ ms( \| threads waited .*)?\n$`)

func TestClosingLine(t *testing.T) {
	for _, c := range []struct {
		args []string
		want [4]string // dtype, layers, of layers, seed
	}{
		{generation, [4]string{"f32", "2", "2", "7"}},
		{with(generation, "--layers", "1"), [4]string{"f32", "1", "2", "7"}},
		{with(generation, "--dtype", "bf16", "-s", "123"), [4]string{"bf16", "2", "2", "123"}},
		{with(generation, "--dtype", "q8"), [4]string{"q8", "2", "2", "7"}},
	} {
		e := mustInfer(t, c.args...)
		if m := closing.FindStringSubmatch(e.stderr); m == nil || [4]string(m[1:]) != c.want {
			t.Errorf("%q closes with %q", c.args, e.stderr)
		}
	}
	if e := mustInfer(t, with(generation, "--device", "reference")...); !strings.HasPrefix(e.stderr, "reference, f64, layers 2 of 2, seed 7 |") {
		t.Errorf("the reference closes with %q", e.stderr)
	}
}

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

// TestLogProbs compares the table with the JSON.
func TestLogProbs(t *testing.T) {
	p := generateJSON(t, with(generation, "--logprobs")...)
	e := mustInfer(t, with(generation, "--logprobs", "--quiet")...)
	lines := strings.Split(strings.TrimSuffix(e.stderr, "\n"), "\n")
	if len(lines) != len(p.IDs) {
		t.Fatalf("%d lines for %d tokens", len(lines), len(p.IDs))
	}
	for i, line := range lines {
		var id int32
		var logprob, probability float64
		if _, err := fmt.Sscanf(line[:6], "%d", &id); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscanf(line[strings.LastIndex(line, "logprob"):], "logprob %f  p %f", &logprob, &probability); err != nil {
			t.Fatal(err)
		}
		if id != p.IDs[i] || math.Abs(logprob-p.LogProbs[i]) > 1e-4 || math.Abs(probability-math.Exp(logprob)) > 1e-4 {
			t.Errorf("line %q is not of token %d, %g", line, p.IDs[i], p.LogProbs[i])
		}
	}
	if e.stdout != mustInfer(t, with(generation, "--quiet")...).stdout {
		t.Error("--logprobs changes the text")
	}
}

// TestTopLogProbs: --logprobs N lists the likeliest tokens of each place, written with or without =; the text stays the same.
func TestTopLogProbs(t *testing.T) {
	p := generateJSON(t, with(generation, "--logprobs", "3", "--temp", "0")...)
	if len(p.Top) != 40 || len(p.LogProbs) != 40 {
		t.Fatalf("%d tokens have the likeliest, %d a log-probability", len(p.Top), len(p.LogProbs))
	}
	for i, top := range p.Top {
		if len(top) != 3 || top[0].ID != p.IDs[i] || top[0].LogProb != p.LogProbs[i] || top[0].LogProb < top[1].LogProb || top[1].LogProb < top[2].LogProb || top[2].Text == nil {
			t.Fatalf("a greedy token is the likeliest, but of token %d, %g, the likeliest are %+v", p.IDs[i], p.LogProbs[i], top)
		}
	}
	plain := mustInfer(t, with(generation, "--quiet")...)
	for _, flag := range [][]string{{"--logprobs", "2"}, {"--logprobs=2"}} {
		e := mustInfer(t, with(generation, append(flag, "--quiet")...)...)
		if e.stdout != plain.stdout || strings.Count(e.stderr, "logprob ") != 40 || strings.Count(e.stderr, "likeliest, p: ") != 40 {
			t.Errorf("%q: the text is %q, stderr has\n%s", flag, e.stdout, e.stderr)
		}
	}
	if e := mustInfer(t, with(generation, "--quiet", "--logprobs=false")...); e.stderr != "" {
		t.Errorf("--logprobs=false prints %q", e.stderr)
	}
	if p := generateJSON(t, "-m", goldenModel, "--ids", "1,2", "-n", "3", "--logprobs", "1"); len(p.Top) != 3 || p.Top[0][0].Text != nil {
		t.Errorf("without a tokenizer the likeliest are %+v", p.Top)
	}
}

// TestEcho: with --echo the text begins with the prompt.
func TestEcho(t *testing.T) {
	text := mustInfer(t, generation...).stdout
	if got := mustInfer(t, with(generation, "--echo")...).stdout; got != "ROMEO:"+text {
		t.Errorf("the text is %q, want the prompt before %q", got, text)
	}
	if p := generateJSON(t, with(generation, "--echo", "--stop", "OMEO")...); p.Text == nil || !strings.HasPrefix(*p.Text, "ROMEO:") || len(*p.Text) < 7 {
		t.Errorf("the JSON's text does not begin with the prompt, or a stop text was found in it: %+v", p)
	}
	if got, want := mustInfer(t, "-m", tiny, "-n", "9", "-s", "1", "--echo").stdout, mustInfer(t, "-m", tiny, "-n", "9", "-s", "1").stdout; got != want {
		t.Errorf("without a prompt the text is %q, want %q", got, want)
	}
	ids := mustInfer(t, "-m", goldenModel, "--ids", "1,2", "-n", "5", "-s", "1").stdout
	if got := mustInfer(t, "-m", goldenModel, "--ids", "1,2", "-n", "5", "-s", "1", "--echo").stdout; got != "1,2,"+ids {
		t.Errorf("the ids are %q, want 1,2, before %q", got, ids)
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

// TestSamplingFlags: --min-p 1 is greedy; a penalty that forbids what was there lets no token come twice, over the tokens that
// --repeat-last-n names; the JSON has the flags.
func TestSamplingFlags(t *testing.T) {
	greedy := mustInfer(t, with(generation, "--temp", "0")...).stdout
	if got := mustInfer(t, with(generation, "--temp", "2", "--min-p", "1")...).stdout; got != greedy {
		t.Errorf("--min-p 1 gives %q, greedy is %q", got, greedy)
	}
	repeats := func(args ...string) (n int) {
		p := generateJSON(t, append(args, "-m", tiny, "-p", "ROMEO:", "-n", "40", "--ignore-eos", "--temp", "0")...)
		seen := map[int32]bool{}
		for _, id := range append(p.Prompt, p.IDs...) {
			if seen[id] {
				n++
			}
			seen[id] = true
		}
		return n - 1 // the O of ROMEO
	}
	without, all, some, none := repeats(), repeats("--repeat-penalty", "1e30", "--repeat-last-n", "-1"), repeats("--repeat-penalty", "1e30", "--repeat-last-n", "5"), repeats("--repeat-penalty", "1e30", "--repeat-last-n", "0")
	if without == 0 || all != 0 || some == 0 || some >= without || none != without {
		t.Errorf("tokens that came again: %d without a penalty, %d with it, %d if it is for 5 tokens, %d if for none", without, all, some, none)
	}
	p := generateJSON(t, with(generation, "--min-p", "0.1", "--repeat-penalty", "1.1", "--repeat-last-n", "32")...)
	if s := p.Sampling; s.MinP != 0.1 || s.Penalty != 1.1 || s.Last != 32 {
		t.Errorf("sampling is %+v", s)
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
