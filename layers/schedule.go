package layers

import (
	"fmt"
	"math/rand/v2"
)

// The tasks.
const (
	TaskPrefill = "prefill"
	TaskDecode  = "decode"
	TaskEnergy  = "energy"
	TaskQuality = "quality"
	TaskDraft   = "draft"
)

// Task is one thing to measure of one variant.
type Task struct {
	What    string
	Variant Variant
	Repeat  int // from 1 on
}

// Key names the task in the state file.
func (t Task) Key() string {
	return fmt.Sprintf("%s of %s %s, %d", t.What, t.Variant.Kind, t.Variant.Label, t.Repeat)
}

// Schedule is what to measure of each variant.
type Schedule struct {
	Phases []string // TaskPrefill, TaskDecode
	Repeat int
	Seed   uint64
	Once   []string // other tasks, after those
}

// Tasks lists the tasks in order. Each round measures each phase of each variant once, in a random order that depends
// on the seed only, so that drift, such as of clocks, affects all alike.
func (p Schedule) Tasks(variants []Variant) []Task {
	var tasks []Task
	random := rand.New(rand.NewPCG(p.Seed, 0x6c6179657273)) // "layers"
	var round []Task
	for _, v := range variants {
		for _, phase := range p.Phases {
			round = append(round, Task{What: phase, Variant: v})
		}
	}
	for n := range p.Repeat {
		for _, i := range random.Perm(len(round)) {
			t := round[i]
			t.Repeat = n + 1
			tasks = append(tasks, t)
		}
	}
	for _, what := range p.Once {
		for _, i := range random.Perm(len(variants)) {
			tasks = append(tasks, Task{what, variants[i], 1})
		}
	}
	return tasks
}
