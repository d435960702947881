package layers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"gpt2scope/gpt2"
	"gpt2scope/measure"
	"gpt2scope/record"
	"gpt2scope/traces"
	"gpt2scope/traces/tables"
)

// stages records passes of a variant by stages, and returns the time of a layer and of everything else.
func (e *Experiment) stages(ctx context.Context, s *gpt2.Session) ([]Value, error) {
	var values []Value
	for _, p := range []struct {
		name  string
		phase gpt2.Pass
		past  int
	}{{TaskPrefill, e.Prefill(), 0}, {TaskDecode, e.Decode(), e.Past}} {
		if !slices.Contains(e.Phases, p.name) {
			continue
		}
		t, err := e.record(ctx, s, p.phase, p.past)
		if errors.Is(err, errors.ErrUnsupported) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		a, b, err := layerTimes(t, p.phase, len(s.Options().Layers))
		if err != nil {
			return nil, fmt.Errorf("the recording by stages cannot be used: %w; %w", err, ErrSkipped)
		}
		values = append(values, Value{Phase: p.name, Metric: "stages outside layers", Unit: "ms", Value: a},
			Value{Phase: p.name, Metric: "stages of a layer", Unit: "ms", Value: b})
	}
	return values, nil
}

// record records passes as Measure runs them. The first ones, for which a GPU makes its launches or graph anew, are in
// a range "warm-up".
func (e *Experiment) record(ctx context.Context, s *gpt2.Session, phase gpt2.Pass, past int) (*traces.Trace, error) {
	r := record.New("gpt2scope", "")
	if err := measure.Record(s, r, func() error {
		end := r.WarmUp()
		_, err := measure.Pass(ctx, s, phase, past, 1)
		end()
		if err == nil {
			_, err = measure.Pass(ctx, s, phase, past, e.Passes)
		}
		return err
	}); err != nil {
		return nil, err
	}
	return r.Trace(), nil
}

// layerTimes returns the time of a layer in a pass, and that of everything else with the idle time there, in ms. A gap
// between two steps of layers, in which threads or kernels wait for each other, counts for the layers: without the
// layer it would not exist.
//
// The time of a layer is the mean of those that are not the last of the pass. If only the last row of logits is wanted,
// the last one computes little but keys and values. The time that it saves is subtracted from the time outside, as it
// is in a line through the times of several depths.
func layerTimes(t *traces.Trace, phase gpt2.Pass, layers int) (outside, layer float64, err error) {
	table, err := tables.Summarize(t, tables.ByLayer, -1)
	if err != nil {
		return 0, 0, err
	}
	for _, f := range table.Findings {
		if f.Misleads {
			return 0, 0, errors.New(f.Text)
		}
	}
	counts := map[string]int{}
	for _, p := range table.Passes {
		counts[p.Phase] += p.Count
	}
	plan := planOf(t.Header, phase, counts)
	if plan == nil {
		return 0, 0, errors.New("the recording has no such passes")
	}
	passes := counts[plan.Phase]

	all, times := int64(0), map[string]int64{} // of layers, by the names of rows
	for _, r := range table.Rows {
		if r.Phase != plan.Phase {
			continue
		}
		all += r.Exclusive
		if r.Kind == tables.RowWork && r.Name != tables.OutsideLayers {
			times[r.Name] += r.Exclusive
		}
	}
	of := func(e *traces.Event) (layer int) { // -1 for none
		if e == nil || e.Plan < 0 || int(e.Plan) >= len(t.Header.Plans) || t.Header.Plans[e.Plan].Phase != plan.Phase {
			return -1
		}
		if step, ok := t.Header.Step(e); ok {
			return step.Layer
		}
		return -1
	}
	for _, g := range table.Gaps {
		if before := of(g.Before); before >= 0 && of(g.Next) >= 0 && g.Next.Step >= g.Before.Step {
			times[layerName(before)] += g.To - g.From
		}
	}

	slots, last := map[string]int{}, ""
	slot := -1
	for _, s := range plan.Steps {
		if s.Slot > slot {
			slot, last = s.Slot, layerName(s.Layer)
			slots[last]++
		}
	}
	if len(slots) > 1 {
		delete(slots, last)
	}
	sum, n := int64(0), 0
	for name, count := range slots {
		sum, n = sum+times[name], n+count
	}
	if n == 0 {
		return 0, 0, errors.New("the recording has no layers")
	}
	layer = float64(sum) / float64(passes) / float64(n) / 1e6
	return float64(all)/float64(passes)/1e6 - float64(layers)*layer, layer, nil
}

// layerName is what the table calls a layer.
func layerName(n int) string { return fmt.Sprintf("h.%d", n) }

// planOf finds the plan of the measured passes of a phase: of several the one with the most steps, since passes that
// fill the cache compute no logits; then the one that ran most often, since a step at position 0 has another name.
func planOf(h *traces.Header, phase gpt2.Pass, passes map[string]int) (plan *traces.Plan) {
	for i := range h.Plans {
		p := &h.Plans[i]
		if p.Tokens != phase.Tokens || p.Batch != phase.Batch || passes[p.Phase] == 0 {
			continue
		}
		if plan == nil || cmp.Or(cmp.Compare(len(p.Steps), len(plan.Steps)), cmp.Compare(passes[p.Phase], passes[plan.Phase])) > 0 {
			plan = p
		}
	}
	return plan
}
