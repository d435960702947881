package layers

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"gpt2scope/gpt2"
	"gpt2scope/internal/require"
	"gpt2scope/measure"
	"gpt2scope/reference/executor"
)

var must = require.NoError

// spoilt is the reference backend with runners that spoil what a test says.
type spoilt struct {
	gpt2.Backend
	nan bool // logits are not numbers
}

type spoiltRunner struct {
	gpt2.Runner
	b *spoilt
}

func (b *spoilt) Prepare(ctx context.Context, m *gpt2.Model, o gpt2.Options) (gpt2.Runner, error) {
	r, err := b.Backend.Prepare(ctx, m, o)
	return &spoiltRunner{Runner: r, b: b}, err
}

func (r *spoiltRunner) Read(b gpt2.Buffer, row int, dst []float32) error {
	err := r.Runner.Read(b, row, dst)
	if r.b.nan {
		dst[len(dst)/2] = float32(math.NaN())
	}
	return err
}

// small is an experiment on a small model, batches of two.
func small(t *testing.T, b *spoilt) *Experiment {
	t.Helper()
	m := require.Value(gpt2.Random("random:L=3,C=16,NH=2,V=257,T=32"))(t)
	b.Backend = executor.New()
	return &Experiment{Model: m, Backend: b, Options: gpt2.Options{Batch: 2}, PromptLen: 3, Past: 2, Passes: 3, Seed: 4, Window: 8}
}

func run(t *testing.T, e *Experiment, what string, v Variant) map[string]Value {
	t.Helper()
	values := require.Value(e.Run(t.Context(), Task{What: what, Variant: v, Repeat: 1}))(t)
	found := map[string]Value{}
	for _, value := range values {
		found[value.Metric] = value
	}
	return found
}

// TestOwnText compares the bits of a text that the whole model writes with what the variant's logits say of it.
func TestOwnText(t *testing.T) {
	e := small(t, &spoilt{})
	v := require.Value(Drop(1, 3))(t)
	values := run(t, e, TaskQuality, v)
	got := values["bits per token"].Value
	if len(e.own) != 9 || e.own[0] != 256 {
		t.Fatalf("the text is %v; expected the end-of-text token and 8 more", e.own)
	}
	logitsOf := func(order []int) []float32 {
		s := require.Value(gpt2.NewSession(t.Context(), e.Model, e.Backend, gpt2.Options{Layers: order}))(t)
		defer s.Close()
		logits := require.Value(s.Logits(t.Context(), e.own, gpt2.LogitsAll))(t)
		return logits
	}
	logits, wants := logitsOf(v.Order), logitsOf(nil)
	bits, same := 0.0, 0.0
	best := func(row []float32) int { return slices.Index(row, slices.Max(row)) }
	for i, next := range e.own[1:] {
		row, sum := logits[257*i:257*(i+1)], 0.0
		if best(row) == best(wants[257*i:257*(i+1)]) {
			same++
		}
		for _, x := range row {
			sum += math.Exp(float64(x) - float64(row[next]))
		}
		bits += math.Log2(sum) / 8
	}
	near(t, "bits per token", got, bits, 1e-6)
	if w := run(t, e, TaskQuality, Depth(3, 3))["bits per token"].Value; w == got {
		t.Errorf("the whole model has %g bits a token too: the test says nothing", w)
	}
	// Layers of random weights hardly change what is most likely, so one of the whole model's is replaced.
	near(t, "agreement", values["agreement"].Value, same/8, 1e-12)
	if a := values["agreement"]; a.N != 0 || a.Low != 0 || a.High != 0 {
		t.Errorf("repeats give the interval of %+v", a)
	}
	e.ownBest[5] = (e.ownBest[5] + 1) % 257
	near(t, "agreement", run(t, e, TaskQuality, v)["agreement"].Value, (same-1)/8, 1e-12)
}

// TestQualityOfText: windows overlap by half, so that each token has some context.
func TestQualityOfText(t *testing.T) {
	e := small(t, &spoilt{})
	e.Text, e.Bytes = []int32{5, 80, 17, 3, 250, 99, 14, 14, 62, 7, 8, 131, 40, 77, 190, 2, 33, 61, 9, 120}, 20
	got := run(t, e, TaskQuality, Depth(2, 3))
	s := require.Value(gpt2.NewSession(t.Context(), e.Model, e.Backend, gpt2.Options{Layers: []int{0, 1}}))(t)
	defer s.Close()
	want := require.Value(s.Evaluate(t.Context(), e.Text, 8, 4, nil))(t)
	near(t, "bits per byte", got["bits per byte"].Value, want.BitsPerByte(20), 1e-12)
	near(t, "perplexity", got["perplexity"].Value, want.Perplexity(), 1e-9)
}

// TestNotFinite: an order of layers whose logits overflow is skipped, the others go on.
func TestNotFinite(t *testing.T) {
	e := small(t, &spoilt{nan: true})
	e.Text, e.Bytes = []int32{1, 2, 3}, 3
	if _, err := e.Run(t.Context(), Task{What: TaskQuality, Variant: Depth(1, 3), Repeat: 1}); !errors.Is(err, ErrSkipped) || !errors.Is(err, gpt2.ErrNotFinite) {
		t.Errorf("logits that are not finite give %v", err)
	}
}

// decodeTimes makes rows of the decode time of a variant.
func decodeTimes(v Variant, ms ...float64) (rows []Row) {
	for i, t := range ms {
		rows = append(rows, Row{Variant: v.Label, Kind: v.Kind, Order: v.Order, Repeat: i + 1, Value: Value{Phase: TaskDecode, Metric: "decode time", Unit: "ms", Value: t}})
	}
	return rows
}

// TestSummarize: the line goes through the depths alone, an error is that of the prediction relative to the
// measurement, and rates follow from the times.
func TestSummarize(t *testing.T) {
	e := small(t, &spoilt{})
	var rows []Row
	var variants []Variant
	for n := 1; n <= 3; n++ {
		variants = append(variants, Depth(n, 3))
		at := 1 + 2*float64(n) // 1 ms and 2 ms a layer
		rows = append(rows, decodeTimes(Depth(n, 3), at, at, at, at, at, at)...)
	}
	repeat, err := RepeatLayer(0, 3)
	must(t, err)
	variants = append(variants, repeat)
	rows = append(rows, decodeTimes(repeat, 100)...)
	verified := Depth(6, 3)
	verified.Kind = KindVerify
	rows = append(rows, decodeTimes(verified, 10)...)
	e.Floor = func(p *gpt2.Plan, past int) time.Duration { return time.Millisecond }
	r, err := e.Summarize(variants, rows, []int{6})
	must(t, err)
	if len(r.Fits) != 1 || len(r.Predictions) != 1 {
		t.Fatalf("%+v", r)
	}
	near(t, "A", r.Fits[0].A, 1, 1e-9)
	near(t, "B", r.Fits[0].B, 2, 1e-9)
	p := r.Predictions[0]
	near(t, "prediction", p.Value, 13, 1e-9)
	if p.Measured == nil || *p.Measured != 10 {
		t.Fatalf("%+v", p)
	}
	near(t, "error", *p.ErrorRate, 0.3, 1e-9)
	near(t, "rate", r.Variants[1].Metrics["decode rate"].Median, 2/5e-3, 1e-9) // two tokens in 5 ms
	near(t, "share of floor", r.Variants[1].Metrics["decode share of floor"].Median, 20, 1e-9)
	// A pass that is faster than its floor has no share of it, and is named.
	e.Floor = func(p *gpt2.Plan, past int) time.Duration { return 4 * time.Millisecond }
	fast, err := e.Summarize(variants, rows, nil)
	must(t, err)
	if _, ok := fast.Variants[0].Metrics["decode share of floor"]; ok || !slices.Equal(fast.BelowFloor, []string{"decode of 1"}) || r.BelowFloor != nil ||
		!strings.Contains(strings.Join(fast.Notes, "\n"), "decode of 1. A ceiling of the device was measured too low") {
		t.Errorf("below the floor: %q, %q", fast.BelowFloor, fast.Notes)
	}
	near(t, "share of floor", fast.Variants[1].Metrics["decode share of floor"].Median, 80, 1e-9)
	notes := strings.Join(r.Notes, "\n")
	for text, want := range map[string]bool{"no 95 % interval": true, "one degree of freedom": true, "No line was fitted": false} {
		if strings.Contains(notes, text) != want {
			t.Errorf("the notes say %q: %v\n%s", text, !want, notes)
		}
	}
	six, err := e.Summarize(variants[:2], rows, nil) // six measurements each, two depths
	must(t, err)
	notes = strings.Join(six.Notes, "\n")
	for text, want := range map[string]bool{"no 95 % interval": false, "one degree of freedom": false, "No line was fitted": true} {
		if strings.Contains(notes, text) != want {
			t.Errorf("of two depths the notes say %q: %v\n%s", text, !want, notes)
		}
	}
	m := Metric{Unit: "ms", Median: 2, Low: 1, High: 4, N: 7}.over(8, "1/s")
	if m != (Metric{Unit: "1/s", Median: 4, Low: 2, High: 8, N: 7}) {
		t.Errorf("8 over 2 (1 to 4) is %+v", m)
	}
}

// JSON cannot hold what is not a finite number.
func TestRowsDropNaN(t *testing.T) {
	values := []Value{{Metric: "perplexity", Value: math.Inf(1)}, {Metric: "agreement", Value: 0.5}, {Metric: "bits per token", Value: math.NaN()}}
	if rows := rowsOf(Task{What: TaskQuality, Variant: Depth(1, 2), Repeat: 1}, values); len(rows) != 1 || rows[0].Metric != "agreement" {
		t.Errorf("%+v", rows)
	}
}

// counter is of 200 W; it steps every 4 ms, or never.
type counter struct {
	start time.Time
	still bool
}

func (c counter) Source() string { return "a test's counter" }

func (c counter) Read() (float64, error) {
	if c.still {
		return 5, nil
	}
	return 800 * float64(time.Since(c.start)/(4*time.Millisecond)), nil
}

// A token takes its time times 200 W; a counter that stands still is told.
func TestEnergy(t *testing.T) {
	e := small(t, &spoilt{})
	e.Meter = &measure.Meter{Counter: counter{start: time.Now()}}
	task := Task{What: TaskEnergy, Variant: Depth(1, 3)}
	values, err := e.Run(t.Context(), task)
	for e.EnergyTime = 50 * time.Millisecond; errors.Is(err, ErrSkipped); e.EnergyTime *= 2 { // a busy machine reads it too seldom
		values, err = e.Run(t.Context(), task)
	}
	if err != nil || len(values) != 1 {
		t.Fatal(values, err)
	}
	if v := values[0]; v.Unit != "mJ" || !(0 < v.Low && v.Low < v.Value && v.Value < v.High) {
		t.Errorf("%+v", v)
	}
	e.Meter = &measure.Meter{Counter: counter{still: true}}
	if _, err := e.Run(t.Context(), task); !errors.Is(err, ErrSkipped) ||
		!strings.Contains(err.Error(), "only 0 counter updates") {
		t.Error(err)
	}
}
