package stages

import (
	"math"
	"slices"
)

// A pass of a transformer is a walk through the states below. Each kernel is in one of them. What the names of
// the kernels say, and the order of the states, are costs: logarithms of how unlikely something is. The cheapest walk
// is found by Viterbi's algorithm, and how sure each state is by the forward-backward algorithm (Rabiner, "A tutorial
// on hidden Markov models", 1989).
type state uint8

const (
	outside state = iota // no kernel of a pass
	embed                // wte+wpe
	between              // after the embeddings, of no stage: masks and positions
	ln1
	attnPre // before a product, part of its stage
	attn
	attnPost // after a product, part of its stage
	key      // where queries, keys and values have a product each, attn is that of the queries
	keyPost
	value
	valuePost
	sdpa
	projPre
	proj
	projPost
	res1
	ln2
	fcPre
	fc
	fcPost
	act
	up // of a gated MLP, whose fc is the gate
	upPost
	downPre
	down
	downPost
	res2
	lnf
	headPre
	head
	headPost
	sample
	numStates
)

// The layer begins with ln1 and ends with res2.
const (
	firstOfLayer = ln1
	lastOfLayer  = res2
)

// role is the kind of a state: states of a role emit the same classes.
type role uint8

const (
	roleOutside role = iota
	roleEmbed
	roleBetween
	roleNorm
	rolePre
	roleProduct
	rolePost
	roleAttention
	roleResidual
	roleGelu
	roleSample
	numRoles
)

var roles = [numStates]role{roleOutside, roleEmbed, roleBetween, roleNorm, rolePre, roleProduct, rolePost,
	roleProduct, rolePost, roleProduct, rolePost, roleAttention, rolePre, roleProduct, rolePost, roleResidual,
	roleNorm, rolePre, roleProduct, rolePost, roleGelu, roleProduct, roleGelu, rolePre, roleProduct, rolePost,
	roleResidual, roleNorm, rolePre, roleProduct, rolePost, roleSample}

// stageOf is the stage of each state: the state of its main kernel.
var stageOf = [numStates]state{outside, embed, outside, ln1, attn, attn, attn, key, key, value, value, sdpa,
	proj, proj, proj, res1, ln2, fc, fc, fc, act, up, act, down, down, down, res2, lnf, head, head, head, sample}

// emission is the cost of a kernel of a class in a state of a role.
var emission = [numClasses][numRoles]float64{
	//             outside embed between norm pre product post attention residual gelu sample
	unknown:       {1.0, 1.5, 1.5, 1.2, 2.0, 2.0, 2.0, 1.5, 1.2, 1.2, 7.0},
	product:       {2.5, 6.0, 6.0, 6.0, 6.0, 0.0, 4.5, 1.0, 6.0, 6.0, 7.0},
	productTail:   {1.5, 5.0, 3.0, 5.0, 4.0, 5.0, 0.0, 1.2, 4.0, 4.0, 7.0},
	productHead:   {1.5, 5.0, 3.0, 5.0, 0.1, 5.0, 3.0, 0.8, 5.0, 4.0, 7.0},
	attention:     {4.0, 7.0, 7.0, 7.0, 7.0, 7.0, 7.0, 0.0, 7.0, 7.0, 7.0},
	softmax:       {1.5, 6.0, 6.0, 6.0, 6.0, 6.0, 6.0, 0.0, 6.0, 5.0, 7.0},
	layerNorm:     {2.0, 3.0, 5.0, 0.0, 5.0, 6.0, 6.0, 5.0, 3.0, 6.0, 7.0},
	gelu:          {1.5, 5.0, 4.0, 6.0, 5.0, 6.0, 4.0, 3.0, 5.0, 0.0, 7.0},
	power:         {0.6, 4.0, 2.0, 5.0, 5.0, 6.0, 4.0, 2.0, 4.0, 0.1, 7.0},
	embedding:     {1.0, 0.0, 2.0, 6.0, 5.0, 6.0, 5.0, 4.0, 5.0, 5.0, 7.0},
	add:           {0.8, 0.4, 1.0, 4.0, 2.5, 6.0, 2.0, 0.8, 0.0, 0.6, 7.0},
	multiply:      {0.6, 2.0, 0.6, 4.0, 2.5, 6.0, 3.0, 0.4, 3.0, 0.4, 7.0},
	copying:       {0.4, 1.5, 0.4, 4.0, 0.7, 6.0, 1.2, 0.2, 3.0, 1.5, 7.0},
	casting:       {0.4, 2.0, 0.6, 3.0, 0.1, 6.0, 1.2, 0.6, 2.0, 1.5, 7.0},
	concatenation: {0.4, 3.0, 0.4, 5.0, 3.0, 6.0, 4.0, 0.1, 4.0, 3.0, 7.0},
	masking:       {0.3, 2.0, 0.1, 5.0, 3.0, 6.0, 4.0, 0.2, 4.0, 3.0, 7.0},
	elementwise:   {0.3, 1.2, 0.3, 1.3, 2.4, 6.0, 2.0, 0.6, 2.0, 0.5, 7.0},
	sampling:      {0.0, 5.0, 2.0, 6.0, 5.0, 6.0, 5.0, 5.0, 6.0, 6.0, 7.0},
	other:         {0.1, 1.2, 0.1, 5.0, 3.0, 6.0, 5.0, 1.0, 5.0, 4.0, 7.0},
	backward:      {0.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0},
	sampler:       {0.5, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 0.0},
}

// fusedAttention is the cost of a product as a part of an attention that is one kernel.
const fusedAttention = 5.0

// skipping is the cost of a state without a kernel: because the kernel was lost, or because another does its work. A
// product is never part of another kernel.
var skipping = [numStates]float64{ln1: 0.8, attn: 6, key: 6, value: 6, up: 6, sdpa: 5, proj: 6, res1: 0.5, ln2: 0.8, fc: 6, act: 0.6, down: 6,
	res2: 0.5, lnf: 1, head: 3}

// staying is the cost of another kernel in the same state.
var staying = [numStates]float64{ln1: 1.5, attn: 5, key: 5, value: 5, proj: 5, res1: 2, ln2: 1.5, fc: 5, up: 5, down: 5, res2: 2, lnf: 1.5,
	head:   5,
	sample: 0.3, embed: 0.1, attnPost: 0.3, keyPost: 0.3, valuePost: 0.3, upPost: 0.05, projPost: 0.3, fcPost: 0.3, downPost: 0.3, headPost: 0.5, attnPre: 0.3,
	projPre: 0.3, fcPre: 0.3, downPre: 0.3, headPre: 0.3, act: 0.05}

// The costs of beginning and ending a pass elsewhere than at its ends.
const (
	enterLate  = 10.0 // a pass begins without embeddings
	enterLost  = 7.0  // the same, right after the end of another
	leaveEarly = 8.0  // a pass ends without a head
	beginLate  = 3.0  // the recording begins within a pass
	endEarly   = 4.0  // the recording ends within a pass
)

// design is what tells the layers of models apart: which products they have.
type design struct {
	products int // of a layer, beside those within an attention
	states   []state
}

// The designs that are known: that of GPT-2; with a product each for queries, keys and values, as in OPT, BERT and ViT;
// with these and a gated MLP, as in Llama.
var (
	fused    = newDesign(4, key, keyPost, value, valuePost, up, upPost)
	separate = newDesign(6, up, upPost)
	designs  = []*design{fused, separate, newDesign(7)}
)

func newDesign(products int, without ...state) *design {
	d := &design{products: products}
	for s := range numStates {
		if !slices.Contains(without, s) {
			d.states = append(d.states, s)
		}
	}
	return d
}

// transitions returns the cost of going from one state to another: +Inf if that is impossible.
func (d *design) transitions() (costs [numStates][numStates]float64) {
	for _, a := range d.states {
		for _, b := range d.states {
			costs[a][b] = d.transitionCost(a, b)
		}
	}
	return costs
}

func (d *design) has(s state) bool { return slices.Contains(d.states, s) }

// forward is the cost of the states that lie between a and b in the order of the states.
func (d *design) forward(a, b state) float64 {
	sum := 0.0
	for s := a + 1; s < b; s++ {
		if d.has(s) {
			sum += skipping[s]
		}
	}
	return sum
}

func (d *design) transitionCost(a, b state) float64 {
	forward := d.forward
	inLayer := func(s state) bool { return s >= firstOfLayer && s <= lastOfLayer }
	isHead := func(s state) bool { return s >= lnf }
	switch {
	case a == b:
		return staying[a]
	case a == outside && b == embed:
		return 0
	case b == between && a == embed, b == embed && a == between:
		return 0.2
	case b == between:
		return math.Inf(1)
	case a == outside:
		return enterLate + forward(embed, min(b, lastOfLayer))
	case b == outside && (a == embed || a == between):
		return leaveEarly
	case b == outside && a >= head:
		return 0
	case b == outside && isHead(a):
		return skipping[head]
	case b == outside:
		return leaveEarly + forward(a, lnf)
	case b == embed && a >= head:
		return 0.1
	case b == embed && isHead(a):
		return skipping[head]
	case b == embed:
		return leaveEarly + forward(a, lnf)
	case (a == embed || a == between) && inLayer(b):
		return forward(between, b)
	case (a == embed || a == between) && isHead(b):
		return math.Inf(1)
	case b > a:
		return forward(a, b)
	case inLayer(a) && inLayer(b): // of the next layer
		return forward(a, lnf) + forward(between, b)
	case isHead(a) && inLayer(b): // the next pass, without embeddings
		return enterLost + forward(a, headPost) + forward(between, b)
	}
	return math.Inf(1)
}

// costsOf are the costs of one kernel in each state.
type costsOf [numStates]float64

// start is the cost of the first kernel's state.
func start(s state) float64 {
	switch s {
	case outside, embed:
		return 0
	case between:
		return beginLate + 2
	}
	return beginLate
}

// finish is the cost of the last kernel's state.
func finish(s state) float64 {
	switch {
	case s == outside || s >= head:
		return 0
	case s >= lnf:
		return 1
	}
	return endEarly
}

// viterbi returns the cheapest walk, and its cost.
func (d *design) viterbi(costs []costsOf) ([]state, float64) {
	n := len(costs)
	if n == 0 {
		return nil, 0
	}
	transition := d.transitions()
	from := make([][numStates]state, n)
	var now, next [numStates]float64
	for _, s := range d.states {
		now[s] = start(s) + costs[0][s]
	}
	for i := 1; i < n; i++ {
		for _, b := range d.states {
			best, at := math.Inf(1), outside
			for _, a := range d.states {
				if c := now[a] + transition[a][b]; c < best {
					best, at = c, a
				}
			}
			next[b], from[i][b] = best+costs[i][b], at
		}
		now = next
	}
	walk := make([]state, n)
	best := math.Inf(1)
	for _, s := range d.states {
		if c := now[s] + finish(s); c < best {
			best, walk[n-1] = c, s
		}
	}
	for i := n - 1; i > 0; i-- {
		walk[i-1] = from[i][walk[i]]
	}
	return walk, best
}

// posterior returns how probable the stage of each kernel's state in a walk is, given all kernels.
func (d *design) posterior(costs []costsOf, walk []state) []float64 {
	n := len(costs)
	weight := d.transitions()
	for _, a := range d.states {
		for _, b := range d.states {
			weight[a][b] = math.Exp(-weight[a][b])
		}
	}
	normalise := func(v *[numStates]float64) {
		sum := 0.0
		for _, x := range v {
			sum += x
		}
		for s := range v {
			v[s] /= sum
		}
	}
	ahead := make([][numStates]float64, n)
	for i := range n {
		for _, b := range d.states {
			p := math.Exp(-start(b))
			if i > 0 {
				p = 0
				for _, a := range d.states {
					p += ahead[i-1][a] * weight[a][b]
				}
			}
			ahead[i][b] = p * math.Exp(-costs[i][b])
		}
		normalise(&ahead[i])
	}
	sure := make([]float64, n)
	var back [numStates]float64
	for s := range back {
		back[s] = math.Exp(-finish(state(s)))
	}
	for i := n - 1; i >= 0; i-- {
		all, own := 0.0, 0.0
		for _, s := range d.states {
			p := ahead[i][s] * back[s]
			all += p
			if stageOf[s] == stageOf[walk[i]] {
				own += p
			}
		}
		sure[i] = own / all
		if i == 0 {
			break
		}
		var before, emitted [numStates]float64
		for _, b := range d.states {
			emitted[b] = math.Exp(-costs[i][b]) * back[b]
		}
		for _, a := range d.states {
			for _, b := range d.states {
				before[a] += weight[a][b] * emitted[b]
			}
		}
		normalise(&before)
		back = before
	}
	return sure
}
