package tasks

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"gpt2scope/internal/journal"
	"gpt2scope/predict"
)

// Case is what a sample is of.
type Case struct {
	Task   *Task
	Shape  Shape
	DType  string
	Device string // "cpu", "cuda:0"
	Way    Way
	Memory predict.Memory
	Cold   bool
}

// String names a case.
func (c Case) String() string {
	return strings.Join([]string{c.Task.Name, c.Shape.String(), c.DType, c.Device, c.Way.Variant, c.Memory.String(), startOf(c.Cold)}, " ")
}

// Suite is what to measure.
type Suite struct {
	Tasks   []*Task
	Devices []string // "cpu", "cuda:0"
	Plain   bool     // the plain variants too
	Repeat  int      // samples of each case
	Rounds  int      // in which the repeats are made
	Seed    uint64   // of the order
	Most    int64    // bytes of the inputs and the result at most; 0 is any
	Cold    int      // cold starts of each case at some sizes
	Shard   journal.Shard

	only map[chosenShape]bool // the shapes that [Suite.Few] chose; nil for all
}

// Turn is the cases of a shape in one type, which share inputs, and the repeats that are
// measured of each before another turn.
type Turn struct {
	Task     *Task
	Shape    Shape
	DType    string
	From, To int  // repeats, from 1 on; To is measured too
	Cold     bool // cold starts
}

// Key names a turn in the journal.
func (t Turn) Key() string {
	return fmt.Sprintf("%s %s %s %s, %d to %d", t.Task.Name, t.Shape, t.DType, startOf(t.Cold), t.From, t.To)
}

// startOf names what a run begins from: a process that has just started, or one in which all is open, loaded and has
// run before.
func startOf(cold bool) string {
	if cold {
		return "cold"
	}
	return "warm"
}

// Cases lists what is measured in a turn.
func (s Suite) Cases(t Turn) []Case {
	var out []Case
	for _, w := range t.Task.Ways {
		if w.Plain && (!s.Plain || t.Cold) || !w.fits(t.Shape, t.DType) {
			continue
		}
		for _, device := range s.Devices {
			if kindOf(device) != w.Device {
				continue
			}
			for _, memory := range w.memories() {
				if t.Cold && (memory == MemoryPinned || memory == MemoryResident && w.Memories == nil) {
					continue // a process that has just started has neither
				}
				out = append(out, Case{t.Task, t.Shape, t.DType, device, w, memory, t.Cold})
			}
		}
	}
	return out
}

// memories lists where a way's inputs and results may be.
func (w Way) memories() []predict.Memory {
	switch {
	case w.Memories != nil:
		return w.Memories
	case w.Device == CPU:
		return []predict.Memory{MemoryHost}
	}
	return []predict.Memory{MemoryPageable, MemoryPinned, MemoryResident}
}

// Turns lists the turns of all shapes that are always measured: each shape once in a round,
// in an order that depends on the seed only, so that drift affects all alike.
func (s Suite) Turns() []Turn {
	var shapes []Turn
	i := 0
	for _, t := range s.Tasks {
		for _, dtype := range t.DTypes {
			for _, shape := range t.Sizes {
				if i++; s.Shard.Has(i-1) && s.has(t, shape, dtype) {
					shapes = append(shapes, Turn{Task: t, Shape: shape, DType: dtype})
				}
			}
		}
	}
	return s.rounds(shapes, 0)
}

// coldBytes bounds the inputs of cold starts.
const coldBytes = 256 << 20

// ColdTurns lists the turns of cold starts: of each task the smallest shape, one in the middle
// and the largest but for very large ones.
func (s Suite) ColdTurns() []Turn {
	if s.Cold < 1 {
		return nil
	}
	var out []Turn
	i := 0
	for _, t := range s.Tasks {
		for _, dtype := range t.DTypes {
			var shapes []Shape
			for _, shape := range t.Sizes {
				if c, err := t.Cost(shape, dtype); err == nil && c.In+c.Out <= coldBytes && s.has(t, shape, dtype) {
					shapes = append(shapes, shape)
				}
			}
			for _, at := range []int{0, len(shapes) / 2, len(shapes) - 1} {
				if i++; len(shapes) >= 3 && s.Shard.Has(i-1) {
					out = append(out, Turn{Task: t, Shape: shapes[at], DType: dtype, From: 1, To: s.Cold, Cold: true})
				}
			}
		}
	}
	random := rand.New(rand.NewPCG(s.Seed, 0x636f6c64)) // "cold"
	random.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// has tells whether the arrays of a shape are not too large, and whether it was chosen where few are.
func (s Suite) has(t *Task, shape Shape, dtype string) bool {
	if s.only != nil && !s.only[chosenShape{t.Name, shape.String(), dtype}] {
		return false
	}
	c, err := t.Cost(shape, dtype)
	return err == nil && (s.Most == 0 || c.In+c.Out <= s.Most)
}

// rounds lists the turns of shapes, round after round.
func (s Suite) rounds(shapes []Turn, stream uint64) []Turn {
	random := rand.New(rand.NewPCG(s.Seed, 0x7461736b73+stream)) // "tasks"
	var out []Turn
	for n := range s.Rounds {
		from, to := n*s.Repeat/s.Rounds+1, (n+1)*s.Repeat/s.Rounds
		if from > to {
			continue
		}
		for _, i := range random.Perm(len(shapes)) {
			t := shapes[i]
			t.From, t.To = from, to
			out = append(out, t)
		}
	}
	return out
}

// kindOf returns CPU or GPU of a device such as "cuda:0".
func kindOf(device string) string {
	kind, _, _ := strings.Cut(device, ":")
	return kind
}
