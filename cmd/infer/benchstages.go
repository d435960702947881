package main

import (
	"context"
	"io"

	"gpt2scope/ceilings"
	"gpt2scope/gpt2"
	"gpt2scope/measure"
	"gpt2scope/record"
	"gpt2scope/traces"
	"gpt2scope/traces/tables"
)

// benchStage is what "infer bench" says of a stage, of all layers together: means of
// one pass.
type benchStage struct {
	Stage   string  `json:"stage"` // h.N is every layer that has it
	Calls   int     `json:"calls"`
	Time    float64 `json:"time_us"` // while any thread computes it
	Share   float64 `json:"percent_of_pass"`
	GBs     float64 `json:"gb_per_s,omitempty"` // of the least bytes
	GFLOPs  float64 `json:"gflop_per_s,omitempty"`
	Bound   string  `json:"bound,omitempty"` // what the floor is made of: "bytes" or "FLOPs"
	Floor   float64 `json:"floor_us,omitempty"`
	OfFloor float64 `json:"percent_of_floor,omitempty"`

	cost  gpt2.Cost
	bytes float64 // of floors of steps that are bound by bytes
}

// measureStages repeats a pass that was measured, records it on the CPU, and says how
// near each stage came to its floor.
func measureStages(ctx context.Context, s *gpt2.Session, plan *gpt2.Plan, phase gpt2.Phase, past, repeat int, set ceilings.Set, sizes gpt2.Sizes) ([]benchStage, error) {
	rec := record.New("gpt2scope", version())
	if err := s.Record(rec); err != nil {
		return nil, err
	}
	_, err := measure.Pass(ctx, s, phase, past, repeat)
	if stopped := s.StopRecording(); err == nil {
		err = stopped
	}
	if err != nil {
		return nil, err
	}
	table, err := tables.Summarize(rec.Trace(), tables.ByStage, -1)
	if err != nil {
		return nil, err
	}
	return stagesOf(table, plan, past, set, sizes), nil
}

// stagesOf makes rows of the passes of the plan's phase.
func stagesOf(table *tables.Table, plan *gpt2.Plan, past int, set ceilings.Set, sizes gpt2.Sizes) []benchStage {
	name := plan.PassName(past)
	steps := map[string]gpt2.Step{}
	floors := map[string]ceilings.Floor{}
	all, _ := set.Floors(plan.Work(past, sizes))
	for i, f := range all {
		steps[plan.Steps[i].Name()], floors[plan.Steps[i].Name()] = plan.Steps[i], f
	}
	var stages []benchStage
	index := map[string]int{}
	at := func(name string) *benchStage {
		i, ok := index[name]
		if !ok {
			i = len(stages)
			index[name] = i
			stages = append(stages, benchStage{Stage: name})
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
		stage := at(traces.InAnyLayer(r.Name, "h.N"))
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
		if stage.Bound = ceilings.BoundFLOPs; 2*stage.bytes > stage.Floor {
			stage.Bound = ceilings.BoundBytes
		}
	}
	return stages
}

// stageColumns are the columns of the table of stages.
var stageColumns = []column[benchStage]{
	{title: "calls", cell: func(s *benchStage) cell { return intCell(int64(s.Calls)) }},
	{title: "time us", cell: func(s *benchStage) cell { return floatCell(s.Time, 2) }},
	{title: "% of pass", cell: func(s *benchStage) cell { return floatCell(s.Share, 1) }},
	{title: "GB/s", cell: func(s *benchStage) cell { return when(s.Calls > 0, rateCell(s.GBs)) }},
	{title: "GFLOP/s", cell: func(s *benchStage) cell { return when(s.Calls > 0, rateCell(s.GFLOPs)) }},
	{title: "floor us", cell: func(s *benchStage) cell { return when(s.Calls > 0, floatCell(s.Floor, 2)) }},
	{title: "of", cell: func(s *benchStage) cell { return textCell(s.Bound) }},
	{title: "% of floor", cell: func(s *benchStage) cell { return when(s.Calls > 0, floatCell(s.OfFloor, 0)) }},
	{title: "  ", left: true, cell: func(s *benchStage) cell { return textCell(s.Stage) }},
}

// writeStages writes the table of stages for people.
func writeStages(w io.Writer, stages []benchStage) {
	printCells(w, stageColumns, stages, nil)
}
