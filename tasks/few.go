package tasks

import (
	"gpt2scope/ceilings"
	"gpt2scope/predict"
)

// chosenShape names a shape of a task in a type.
type chosenShape struct{ task, shape, dtype string }

// Few leaves in the suite at most so many shapes of each task, in whatever type: those whose times on the first device tell the cost model most about
// the others, see [predict.Few]. It chooses the same ones on all machines: floors are those of round ceilings.
func (b *Bench) Few(each int) {
	device := b.Suite.Devices[0]
	memory := MemoryHost
	if kindOf(device) != CPU {
		memory = MemoryResident
	}
	round := ceilings.Set{Values: []ceilings.Value{{Name: ceilings.Read, Unit: ceilings.GBs, Value: 100},
		{Name: ceilings.F32, Unit: ceilings.TFLOPs, Value: 2}, {Name: ceilings.BF16, Unit: ceilings.TFLOPs, Value: 8}}}
	var samples []Sample
	for _, t := range b.Suite.Tasks {
		way := Way{Device: kindOf(device), Variant: Tuned}
		for _, dtype := range t.DTypes {
			for _, shape := range t.Sizes {
				if cost, err := t.Cost(shape, dtype); err == nil && b.Suite.has(t, shape, dtype) {
					c := Case{Task: t, Shape: shape, DType: dtype, Device: device, Way: way, Memory: memory, Start: StartWarm}
					r := b.sample(c, cost, 1, Times{Wall: 1})
					r.FloorUs = cost.FloorUs(round)
					samples = append(samples, r)
				}
			}
		}
	}
	rows, _ := Rows(samples) // all, in their order
	works := make([]predict.Work, len(rows))
	for i := range rows {
		works[i] = rows[i].Work
	}
	b.Suite.only = map[chosenShape]bool{}
	for _, i := range predict.Few(kindOf(device), works, each) {
		b.Suite.only[chosenShape{rows[i].Task, rows[i].Shape, rows[i].DType}] = true
	}
}
