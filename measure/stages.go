package measure

import (
	"context"
	"errors"

	"gpt2scope/ceilings"
	"gpt2scope/gpt2"
	"gpt2scope/record"
	"gpt2scope/traces"
	"gpt2scope/traces/tables"
)

// Record records what run does with a session.
func Record(s *gpt2.Session, r *record.Recorder, run func() error) error {
	if err := s.Record(r); err != nil {
		return err
	}
	err := run()
	return errors.Join(err, s.StopRecording())
}

// StageTime is the time of a stage, of all layers together: means of one pass.
type StageTime struct {
	Stage   string  `json:"stage"`   // "h.N.attn.sdpa" is every layer's
	Calls   int     `json:"calls"`   // 0 of the time between stages
	Time    float64 `json:"time_us"` // while any thread computes it
	Share   float64 `json:"percent_of_pass"`
	GBs     float64 `json:"gb_per_s,omitempty"`         // of the least bytes
	GFLOPs  float64 `json:"gflop_per_s,omitempty"`      // of the least bytes and FLOPs
	Bound   string  `json:"bound,omitempty"`            // what the floor is made of: "bytes" or "FLOPs"
	Floor   float64 `json:"floor_us,omitempty"`         // the least time
	OfFloor float64 `json:"percent_of_floor,omitempty"` // floor / time

	Roofline float64 `json:"roofline_percent,omitempty"` // [ceilings.Roofline] of floor and time, 0 if there is none

	cost  gpt2.Cost
	bytes float64 // of floors of steps that are bound by bytes
}

// Stages measures a pass as [Pass] does, recorded. What it returns gives the time of each
// stage beside its floor by a set of ceilings.
func Stages(ctx context.Context, s *gpt2.Session, pass gpt2.Pass, past, repeat int) (func(ceilings.Set) []StageTime,
	error) {
	plan, err := s.Plan(pass)
	if err != nil {
		return nil, err
	}
	r := record.New("gpt2scope", "")
	if err := Record(s, r, func() error {
		_, err := Pass(ctx, s, pass, past, repeat)
		return err
	}); err != nil {
		return nil, err
	}
	table, err := tables.Summarize(r.Trace(), tables.ByStage, -1)
	if err != nil {
		return nil, err
	}
	return func(set ceilings.Set) []StageTime { return stagesOf(table, plan, past, set, s.Backend().Sizes()) }, nil
}

// stagesOf makes a row of each stage of the passes that are the plan's.
func stagesOf(table *tables.Table, plan *gpt2.Plan, past int, set ceilings.Set, sizes gpt2.Sizes) []StageTime {
	name := plan.PassName(past)
	steps := map[string]gpt2.Step{}
	floors := map[string]ceilings.Floor{}
	all, _ := set.Floors(plan.Work(past, sizes))
	for i, f := range all {
		steps[plan.Steps[i].Name()], floors[plan.Steps[i].Name()] = plan.Steps[i], f
	}
	var stages []StageTime
	index := map[string]int{}
	at := func(name string) *StageTime {
		i, ok := index[name]
		if !ok {
			i = len(stages)
			index[name] = i
			stages = append(stages, StageTime{Stage: name})
		}
		return &stages[i]
	}
	passes, sum := 0, 0.0
	for _, p := range table.Passes {
		if p.Phase == name {
			passes += p.Count
		}
	}
	for i := range table.Rows {
		r := &table.Rows[i]
		if r.Phase != name || passes == 0 {
			continue
		}
		time := float64(r.Exclusive) / 1e3 / float64(passes)
		sum += time
		step, ok := steps[r.Name]
		if !ok {
			at("between stages").Time += time
			continue
		}
		stage := at(traces.InAnyLayer(r.Name))
		f := floors[r.Name]
		stage.Calls++
		stage.Time += time
		stage.Floor += f.Time / 1e3
		if f.Bound == ceilings.BoundBytes {
			stage.bytes += f.Time / 1e3
		}
		stage.cost = stage.cost.Add(step.Cost(past))
	}
	for i := range stages {
		stage := &stages[i]
		if sum > 0 {
			stage.Share = 100 * stage.Time / sum
		}
		if stage.Calls == 0 || stage.Time == 0 {
			continue
		}
		stage.GBs, stage.GFLOPs = float64(stage.cost.Bytes(sizes))/stage.Time/1e3, float64(stage.cost.FLOPs)/stage.Time/1e3
		stage.OfFloor = 100 * stage.Floor / stage.Time
		stage.Roofline, _ = ceilings.Roofline(stage.Floor, stage.Time)
		if stage.Bound = ceilings.BoundFLOPs; 2*stage.bytes > stage.Floor {
			stage.Bound = ceilings.BoundBytes
		}
	}
	return stages
}
