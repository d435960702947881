package layers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gpt2scope/gpt2"
	"gpt2scope/internal/journal"
	"gpt2scope/measure"
)

// Experiment measures variants of a model on a backend.
type Experiment struct {
	Model   *gpt2.Model
	Backend gpt2.Backend
	Options gpt2.Options // Context, Chunk, Batch; the layers are those of the variant

	PromptLen int // tokens of the prefill, per sequence
	Past      int // tokens in the cache before the decode step
	Passes    int // of which a measurement is the median

	Seed   uint64
	Window int     // tokens of a text that are evaluated at once
	Text   []int32 // to measure quality on; nil is a text that the model writes
	Bytes  int     // length of Text before it was tokenized

	Shard journal.Shard // the part of the tasks that is done here

	Floor  func(p *gpt2.Plan, past int) time.Duration // the least time of a pass; nil: not known
	Memory func(order []int) (int64, error)           // bytes that a session of a run order takes; nil is PredictMemory

	// Progress, if not nil, gets the bytes of weights made ready and their total.
	Progress func(done, total int64)

	Meter      *measure.Meter // nil if energy is not measured
	EnergyTime time.Duration  // of each measurement of it

	weights *gpt2.Session // holds the weights of all layers while others come and go
	own     []int32       // what the whole model writes, once it was needed
	ownBest []int32       // the tokens that it finds most likely there
}

// ErrSkipped is wrapped by the error of a task that failed alone: other tasks can go on.
var ErrSkipped = errors.New("measurement skipped")

// Close frees the weights that tasks share.
func (e *Experiment) Close() error {
	if e.weights == nil {
		return nil
	}
	s := e.weights
	e.weights = nil
	return s.Close()
}

// Load makes the weights of all variants ready, and keeps them. A session then only adds a KV cache and activations,
// which are freed when its task is done.
func (e *Experiment) Load(ctx context.Context, variants []Variant) error {
	if e.weights != nil {
		return nil
	}
	var layers []int
	for _, v := range variants {
		layers = append(layers, v.Order...)
	}
	if e.Text == nil { // the whole model writes it
		layers = append(layers, gpt2.FirstLayers(e.Model.Config.Layers)...)
	}
	slices.Sort(layers)
	s, err := gpt2.NewSession(ctx, e.Model, e.Backend, gpt2.Options{Layers: slices.Compact(layers), Batch: 1, Context: 1,
		Progress: e.Progress})
	e.weights = s
	return err
}

func (e *Experiment) session(ctx context.Context, order []int, batch int) (*gpt2.Session, error) {
	o := e.Options
	o.Layers, o.Batch = order, batch
	return gpt2.NewSession(ctx, e.Model, e.Backend, o)
}

// Prefill is the phase that is measured as prefill.
func (e *Experiment) Prefill() gpt2.Pass {
	return gpt2.Pass{Batch: e.batch(), Tokens: e.PromptLen, Logits: gpt2.LogitsLast}
}

// Decode is the phase that is measured as decode step.
func (e *Experiment) Decode() gpt2.Pass {
	return gpt2.Pass{Batch: e.batch(), Tokens: 1, Logits: gpt2.LogitsLast, Sample: true}
}

func (e *Experiment) batch() int { return max(1, e.Options.Batch) }

// Run does a task.
func (e *Experiment) Run(ctx context.Context, t Task) (values []Value, err error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if (t.What == TaskQuality || t.What == TaskDraft) && errors.Is(err, gpt2.ErrNotFinite) {
			err = fmt.Errorf("%w; %w", err, ErrSkipped) // an order of layers may overflow, others need not
		}
	}()
	batch := e.batch()
	switch t.What {
	case TaskDraft:
		return e.draft(ctx, t.Variant)
	case TaskQuality:
		batch = 1
	}
	s, err := e.session(ctx, t.Variant.Order, batch)
	if err != nil {
		return nil, err
	}
	defer func() { err = cmp.Or(err, s.Close()) }()
	switch t.What {
	case TaskPrefill:
		return e.prefill(ctx, s)
	case TaskDecode:
		return e.decode(ctx, s)
	case TaskEnergy:
		return e.energy(ctx, s)
	case TaskQuality:
		return e.quality(ctx, s)
	}
	return nil, fmt.Errorf("there is no task %q", t.What)
}

// Do does tasks in order, and adds their values to a journal; done is called after each. Tasks that fail alone
// ([ErrSkipped]) are skipped; notes say why, once for each kind of task.
func (e *Experiment) Do(ctx context.Context, tasks []Task, j *journal.Journal[Row], done func()) (notes []string,
	err error) {
	skipped, reasons := map[string][]string{}, map[string]error{}
	defer func() {
		for _, what := range slices.Sorted(maps.Keys(skipped)) {
			notes = append(notes, fmt.Sprintf("%s of %s: %v.", what, strings.Join(skipped[what], ", "), reasons[what]))
		}
	}()
	for _, t := range tasks {
		values, err := e.Run(ctx, t)
		if errors.Is(err, ErrSkipped) {
			skipped[t.What] = append(skipped[t.What], t.Variant.Label)
			reasons[t.What] = cmp.Or(reasons[t.What], err)
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", t.Key(), err)
		} else if err := j.Add(t.Key(), rowsOf(t, values)); err != nil {
			return nil, err
		}
		done()
	}
	return nil, nil
}

func (e *Experiment) prefill(ctx context.Context, s *gpt2.Session) ([]Value, error) {
	m, err := measure.Pass(ctx, s, e.Prefill(), 0, e.Passes)
	if err != nil {
		return nil, err
	}
	return []Value{{Phase: TaskPrefill, Metric: "prefill time", Unit: "ms", Value: ms(m.Median)}}, nil
}

func (e *Experiment) decode(ctx context.Context, s *gpt2.Session) ([]Value, error) {
	m, err := measure.Pass(ctx, s, e.Decode(), e.Past, e.Passes)
	if err != nil {
		return nil, err
	}
	values := []Value{{Phase: TaskDecode, Metric: "decode time", Unit: "ms", Value: ms(m.Median)}}
	if device, ok := s.Runner().(gpt2.OnDevice); ok {
		n, err := device.Launches(e.Decode())
		if err != nil {
			return nil, err
		}
		values = append(values, Value{Phase: TaskDecode, Metric: "launches", Unit: "1", Value: float64(n), N: 1,
			Low: float64(n), High: float64(n)})
	}
	return values, nil
}

// energy measures the energy of a token by decoding for a while.
func (e *Experiment) energy(ctx context.Context, s *gpt2.Session) ([]Value, error) {
	w := measure.Decoding(s, e.Past)
	used, err := e.Meter.Energy(ctx, w, e.EnergyTime)
	if errors.As(err, new(*measure.CounterError)) {
		return nil, fmt.Errorf("%w (--energy-seconds); %w", err, ErrSkipped)
	}
	if err != nil {
		return nil, err
	}
	p := used.Power
	return []Value{{Phase: TaskDecode, Metric: "energy", Unit: "mJ", Value: used.OfToken(w, p.Watts),
		Low: used.OfToken(w, p.Watts-p.Uncertainty), High: used.OfToken(w, p.Watts+p.Uncertainty), N: 1}}, nil
}

// WarmUp runs passes of a variant for a while without recording them, so that clocks and caches are as in the middle of
// the experiment.
func (e *Experiment) WarmUp(ctx context.Context, v Variant, d time.Duration) error {
	s, err := e.session(ctx, v.Order, e.batch())
	if err != nil {
		return err
	}
	for begin := time.Now(); err == nil && time.Since(begin) < d; {
		_, err = measure.Pass(ctx, s, e.Decode(), e.Past, 1)
	}
	return errors.Join(err, s.Close())
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
