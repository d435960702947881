package gpt2

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpt2scope/ceilings"
)

// Buffer names an activation buffer of a pass. All are float32 at this level, B
// sequences of Rows rows each, row-major; backends may hold them otherwise.
type Buffer uint8

const (
	BufNone   Buffer = iota
	BufX             // (B, T, C) the residual stream
	BufNorm          // (B, T, C) output of a LayerNorm
	BufQKV           // (B, T, 3*C) queries, keys and values of the new tokens
	BufAttn          // (B, T, C) output of attention, heads side by side
	BufProj          // (B, T, C) what is added to the residual stream next
	BufInner         // (B, T, 4*C) inside the MLP
	BufLogits        // (B, 1 or T, V)
	BufTokens        // (B, 1) token ids
	NumBuffers
)

var bufferNames = [NumBuffers]string{"", "x", "norm", "qkv", "attn", "proj", "inner", "logits", "tokens"}

// String gives the buffer's name, such as "qkv".
func (b Buffer) String() string { return bufferNames[b] }

// Shape is the extent of a buffer: for each of the B sequences, Rows rows of Width elements.
type Shape struct{ Rows, Width int }

// Logits says which rows of logits a pass gives.
type Logits uint8

const (
	LogitsNone Logits = iota // none: the pass only fills the KV cache
	LogitsLast               // those after the last token of each sequence
	LogitsAll                // those after every token
)

// Pass says what a pass computes: what a plan is made for. It is comparable, so that it can be a key.
type Pass struct {
	Batch  int    // B, sequences of equal length
	Tokens int    // T, new tokens per sequence
	Logits Logits // rows of logits wanted
	Sample bool   // sample the next token from the last row of logits
	Until  string // end the pass after this stage, all of its rows; "" runs it whole

	// Of speculation ([Verifier]); the zero values are of every other pass.
	Exit   int  // run so many of the first layers only, and read logits there; 0 runs all
	From   int  // begin after so many layers, with what passes of Exit layers left of these tokens; 0 begins with wte+wpe
	Verify bool // compute each row as a decode step would, and sample from each until one is not the token that follows it
}

// IsDecode tells whether the pass is a decode step (T = 1).
func (p Pass) IsDecode() bool { return p.Tokens == 1 && p.Exit == 0 && !p.Verify }

// exitRows returns how many rows per sequence leave the last layer.
func (p Pass) exitRows() int {
	switch {
	case p.Until != "" || p.Logits == LogitsAll:
		return p.Tokens
	case p.Logits == LogitsLast:
		return 1
	default:
		return 0
	}
}

// Operation is the mathematics of one stage at its place in a pass.
//
// Rows are counted from the end: an operation over R rows reads the last R rows of each sequence in its inputs and
// writes the last R rows of each sequence in its output. So the last layer of a pass that wants only the last row of
// logits does only what that row needs.
type Operation struct {
	StageAt
	Op   Op
	Rows int // rows of each sequence

	// Queries is how many of the rows also need a query: attn.c_attn computes keys and values for all rows and queries
	// for the last ones; attn.sdpa stores Rows rows of K and V, and gives Queries rows.
	Queries int

	In, Aux, Out Buffer // Aux is the second term of an Add
	K, N         int    // widths of In and Out
	Weight, Bias string // tensors, "" if there is none; the embedding's are wte and wpe
	Scale        float64
	Activation   Activation

	heads, batch int
}

// outRows returns how many rows of each sequence the operation writes.
func (o Operation) outRows() int {
	if o.Op == OpAttention {
		return o.Queries
	}
	return o.Rows
}

// Step is one thing that a backend does in a pass: one operation, or several fused ones, done in order.
type Step struct {
	Tag int // index in the plan
	Ops []Operation

	// saved are activations that fusing keeps out of memory, in elements.
	saved int64
}

// Name joins the names of the covered stages by '+'.
func (s Step) Name() string {
	names := make([]string, len(s.Ops))
	for i, o := range s.Ops {
		names[i] = o.StageAt.String()
	}
	return strings.Join(names, "+")
}

// Slot returns the place of the step's layer in the run order, -1 outside the
// layers. A fused step belongs to the layer of its first stage.
func (s Step) Slot() int { return s.Ops[0].Slot }

// Layer returns the layer whose weights the step uses, -1 outside the layers.
func (s Step) Layer() int { return s.Ops[0].Layer }

// Op returns the operation that names the step: its Linear or Attention if it has one, else its first.
func (s Step) Op() Op {
	for _, o := range s.Ops {
		if o.Op == OpLinear || o.Op == OpAttention {
			return o.Op
		}
	}
	return s.Ops[0].Op
}

// Last returns the last operation, whose output is the step's.
func (s Step) Last() Operation { return s.Ops[len(s.Ops)-1] }

// Cost returns what the step needs at least, after fusion, with past tokens in
// the cache: what passes between its operations is neither written nor read.
func (s Step) Cost(past int) Cost {
	var c Cost
	for _, o := range s.Ops {
		c = c.Add(o.Cost(past))
	}
	c.Activations -= s.saved
	return c
}

// Work returns what the step needs at least, in the terms of [ceilings.Set.Floor].
func (s Step) Work(past int, sizes Sizes) ceilings.Work {
	c := s.Cost(past)
	w := ceilings.Work{FLOPs: c.FLOPs, Type: sizes.Type(s.Op()),
		Activations: Cost{Activations: c.Activations}.Bytes(sizes)}
	w.Bytes = c.Bytes(sizes) - w.Activations
	return w
}

// Plan is the list of steps of a pass, made once per session and [Pass]. It is what backends execute and what traces
// refer to. A plan is not changed after it is made.
type Plan struct {
	Config  Config
	Layers  []int // run order: Layers[slot] is the layer whose weights run there
	Pass    Pass
	Steps   []Step
	Buffers [NumBuffers]Shape // zero if a buffer is not used
}

// Cost returns the sum over the steps.
func (p *Plan) Cost(past int) Cost {
	var c Cost
	for _, s := range p.Steps {
		c = c.Add(s.Cost(past))
	}
	return c
}

// Work returns what each step needs at least, with past tokens in the cache.
func (p *Plan) Work(past int, sizes Sizes) []ceilings.Work {
	work := make([]ceilings.Work, len(p.Steps))
	for i, s := range p.Steps {
		work[i] = s.Work(past, sizes)
	}
	return work
}

// Output returns the buffer that the last step writes, and its shape.
func (p *Plan) Output() (Buffer, Shape) {
	o := p.Steps[len(p.Steps)-1].Last()
	return o.Out, p.Buffers[o.Out]
}

// Chain is a pattern of operations that a backend can do as one step.
type Chain []Op

// Fuse returns the plan with neighbouring steps joined if their operations match one of the chains and each takes what
// the one before it gives, with the same rows. If several chains match, the longest wins. The plan itself is left as it
// is.
func (p *Plan) Fuse(chains ...Chain) *Plan {
	return p.FuseWhere(func([]Operation) bool { return true }, chains...)
}

// FuseWhere is [Plan.Fuse] for the matches that ok approves of; it is given their operations in order.
func (p *Plan) FuseWhere(ok func(ops []Operation) bool, chains ...Chain) *Plan {
	longestFirst := slices.SortedStableFunc(slices.Values(chains), func(a, b Chain) int { return len(b) - len(a) })
	out := *p
	out.Steps = nil
	for i := 0; i < len(p.Steps); {
		n, step := 1, p.Steps[i]
		for _, chain := range longestFirst {
			if ops := p.matches(i, chain); ops != nil && ok(ops) {
				n, step.Ops = len(chain), ops
				break
			}
		}
		step.Tag = len(out.Steps)
		for j := i; j+1 < i+n; j++ {
			step.saved += p.savedBetween(j, i+n)
		}
		out.Steps = append(out.Steps, step)
		i += n
	}
	return &out
}

// matches returns the operations of the steps from i on if they are single ones of the chain, each fed by the one
// before it, else nil.
func (p *Plan) matches(i int, chain Chain) (ops []Operation) {
	if i+len(chain) > len(p.Steps) {
		return nil
	}
	for j, op := range chain {
		s := p.Steps[i+j]
		if len(s.Ops) != 1 || s.Ops[0].Op != op {
			return nil
		}
		o := s.Ops[0]
		if j > 0 && (ops[j-1].outRows() != o.Rows || o.In != ops[j-1].Out && o.Aux != ops[j-1].Out) {
			return nil
		}
		ops = append(ops, o)
	}
	return ops
}

// savedBetween returns the activations that need not move if step j passes its output to step j+1 inside a fused step
// that ends before step end: those that step j+1 reads, and those that step j writes if no later step reads them.
func (p *Plan) savedBetween(j, end int) int64 {
	o, next := p.Steps[j].Last(), p.Steps[j+1].Ops[0]
	n := int64(p.Pass.Batch) * int64(o.outRows()) * int64(o.N)
	if next.Out == o.Out { // done in place: the chain's end writes it
		return 2 * n
	}
	for _, s := range p.Steps[end:] {
		for _, later := range s.Ops {
			if later.In == o.Out || later.Aux == o.Out {
				return n
			}
			if later.Out == o.Out {
				return 2 * n
			}
		}
	}
	return 2 * n
}

// Check says whether this pass over these layers is one that the model has, for a context of capacity tokens.
func (p Pass) Check(c Config, layers []int, capacity int) error {
	if err := CheckLayers(c, layers); err != nil {
		return err
	}
	switch {
	case p.Batch < 1:
		return fmt.Errorf("the batch is %d; it must be at least 1", p.Batch)
	case p.Tokens < 1:
		return errNoTokens
	case p.Tokens > capacity:
		return fmt.Errorf("%d tokens do not fit in a context of %d; shorten the text or raise the context (the model's "+
			"limit is %d)", p.Tokens, capacity, c.Positions)
	case p.Batch > maxRows/p.Tokens:
		return fmt.Errorf("a pass of %d x %d tokens is more than %d; lower one of them", p.Batch, p.Tokens, maxRows)
	case p.Sample && (p.exitRows() == 0 || p.Until != ""):
		return errors.New("a pass without logits cannot sample")
	case p.Exit < 0 || p.Exit > 0 && p.Exit >= len(layers) || p.From < 0 || p.From >= len(layers):
		return fmt.Errorf("a pass that ends or begins after layer %d of %d does not exist", max(p.Exit, p.From), len(layers))
	}
	if p.Until != "" {
		_, err := FindStage(p.Until, layers)
		return err
	}
	return nil
}

// CheckLayers says whether the model has every layer of a run order. A layer may occur more than once.
func CheckLayers(c Config, layers []int) error {
	if len(layers) == 0 {
		return errors.New("no layers to run; give at least one")
	}
	for _, l := range layers {
		if l < 0 || l >= c.Layers {
			return fmt.Errorf("layer %d does not exist; the model has layers 0 to %d", l, c.Layers-1)
		}
	}
	return nil
}

// FirstLayers returns the run order 0, 1, ..., n-1.
func FirstLayers(n int) []int {
	layers := make([]int, n)
	for i := range layers {
		layers[i] = i
	}
	return layers
}
