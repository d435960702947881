package gpt2

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"gpt2scope/ceilings"
)

// Op is the operation of a stage: what kind of mathematics it is.
type Op uint8

const (
	OpEmbed      Op = iota // x = wte[id] + wpe[position]
	OpLayerNorm            // y = (x - mean) / sqrt(var + eps) * gain + bias
	OpLinear               // y = x W + b
	OpAttention            // y = softmax(scale q k^T, causal) v, over the KV cache
	OpActivation           // y = act(x)
	OpAdd                  // x = x + z
	OpSample               // token = sample(logits)
	numOps
)

var opNames = [numOps]string{"Embed", "LayerNorm", "Linear", "Attention", "Activation", "Add", "Sample"}

// String gives the operation's name, such as "Linear".
func (o Op) String() string { return opNames[o] }

// Stage is a named part of the model's mathematics, the unit of all
// instrumentation. Stages of a layer occur once per layer.
type Stage uint8

// The stages, in the order in which a pass meets them.
const (
	StageEmbed     Stage = iota // wte+wpe
	StageLN1                    // h.N.ln_1
	StageCAttn                  // h.N.attn.c_attn
	StageSDPA                   // h.N.attn.sdpa
	StageAttnCProj              // h.N.attn.c_proj
	StageResidual1              // h.N.residual_1
	StageLN2                    // h.N.ln_2
	StageCFC                    // h.N.mlp.c_fc
	StageGELU                   // h.N.mlp.gelu
	StageMLPCProj               // h.N.mlp.c_proj
	StageResidual2              // h.N.residual_2
	StageLNF                    // ln_f
	StageLMHead                 // lm_head
	StageSample                 // sample
	NumStages
)

// StageInfo is what the registry says of a stage.
type StageInfo struct {
	Name    string // within its layer if it has one: "attn.c_attn"
	InLayer bool   // occurs once per layer, as h.N.Name
	Op      Op
}

// stages is the registry: what exists is listed here, once.
var stages = [NumStages]StageInfo{
	StageEmbed:     {"wte+wpe", false, OpEmbed},
	StageLN1:       {"ln_1", true, OpLayerNorm},
	StageCAttn:     {"attn.c_attn", true, OpLinear},
	StageSDPA:      {"attn.sdpa", true, OpAttention},
	StageAttnCProj: {"attn.c_proj", true, OpLinear},
	StageResidual1: {"residual_1", true, OpAdd},
	StageLN2:       {"ln_2", true, OpLayerNorm},
	StageCFC:       {"mlp.c_fc", true, OpLinear},
	StageGELU:      {"mlp.gelu", true, OpActivation},
	StageMLPCProj:  {"mlp.c_proj", true, OpLinear},
	StageResidual2: {"residual_2", true, OpAdd},
	StageLNF:       {"ln_f", false, OpLayerNorm},
	StageLMHead:    {"lm_head", false, OpLinear},
	StageSample:    {"sample", false, OpSample},
}

// Info returns the registry's entry.
func (s Stage) Info() StageInfo { return stages[s] }

// Cost returns what the stage needs at least, alone and unfused, for B sequences of T new tokens after past ones.
func (s Stage) Cost(c Config, B, T, past int) Cost {
	all := Forward(c, []int{0}, Pass{Batch: B, Tokens: T, Logits: LogitsAll, Sample: true})
	return all.Steps[s].Cost(past) // of a single layer, each stage occurs once
}

// StageNames are the names of the stages, in order.
func StageNames() (names []string) {
	for _, s := range stages {
		names = append(names, s.Name)
	}
	return names
}

// StageAt is a stage at its place in a pass.
type StageAt struct {
	Stage Stage
	Slot  int // place in the run order, which names the KV cache; -1 outside the layers
	Layer int // whose weights; -1 outside the layers
}

// String gives the stage's name: "h.0.attn.c_attn", "ln_f". A layer that runs at another place than its own carries the
// place too: "h.2@1.ln_1" is the ln_1 of layer 2, run second.
func (s StageAt) String() string {
	info := s.Stage.Info()
	if !info.InLayer {
		return info.Name
	}
	return LayerName(s.Slot, s.Layer) + "." + info.Name
}

// FindOutput finds the stage of a name that gives activations: sample gives tokens.
func FindOutput(name string, layers []int) (StageAt, error) {
	at, err := FindStage(name, layers)
	if err == nil && at.Stage == StageSample {
		err = errors.New("stage sample gives tokens, not activations; lm_head gives the logits that it samples from")
	}
	return at, err
}

// inOrder returns the stages of a pass over a run order of layers.
func inOrder(layers []int) []StageAt {
	all := []StageAt{{StageEmbed, -1, -1}}
	for slot, layer := range layers {
		for s := range NumStages {
			if s.Info().InLayer {
				all = append(all, StageAt{s, slot, layer})
			}
		}
	}
	return append(all, StageAt{StageLNF, -1, -1}, StageAt{StageLMHead, -1, -1}, StageAt{StageSample, -1, -1})
}

// FindStage finds a stage by name among those of a run order of layers, as [StageAt.String] writes it.
func FindStage(name string, layers []int) (StageAt, error) {
	for _, at := range inOrder(layers) {
		if at.String() == name {
			return at, nil
		}
	}
	var within, outside []string
	for s, info := range stages {
		if info.InLayer {
			within = append(within, "h.N."+info.Name)
		} else if Stage(s) != StageSample { // which nobody looks for
			outside = append(outside, info.Name)
		}
	}
	return StageAt{}, fmt.Errorf("no stage %q runs here; stages are %s, with N of %v, and %s",
		name, strings.Join(within, ", "), layers, strings.Join(outside, ", "))
}

// Cost is what a stage or step needs at least, in operations and in elements
// moved: each input read once, each output written once.
//
// A floating-point operation is one addition, multiplication, division, comparison, exponential, tanh, erf or square
// root. Elements are counted by what they are, since a backend may hold weights, activations and the KV cache in
// different types; [Cost.Bytes] turns them into bytes.
type Cost struct {
	FLOPs       int64
	Weights     int64 // elements of parameters read
	Activations int64 // elements of activations read and written
	KV          int64 // elements of the KV cache read and written
}

// Sizes are the bytes of an element of each kind, as a backend holds them. Those of a
// weight, key or value may be a fraction: quantised ones share a scale.
type Sizes struct {
	Weight, KV float64
	Activation int

	// Multiply is the type in which products multiply: ceilings.F32, ceilings.BF16 or ceilings.Int8; Attend that of
	// attention, "" for the same. All else is float32.
	Multiply, Attend string
}

// Type returns the type that an operation computes in.
func (s Sizes) Type(op Op) string {
	switch op {
	case OpLinear:
		return s.Multiply
	case OpAttention:
		return cmp.Or(s.Attend, s.Multiply)
	}
	return ceilings.F32
}

// Bytes returns the least bytes moved.
func (c Cost) Bytes(s Sizes) int64 {
	return int64(float64(c.Weights)*s.Weight) + c.Activations*int64(s.Activation) + int64(float64(c.KV)*s.KV)
}

// Add returns the sum of two costs.
func (c Cost) Add(d Cost) Cost {
	return Cost{c.FLOPs + d.FLOPs, c.Weights + d.Weights, c.Activations + d.Activations, c.KV + d.KV}
}

// Cost returns what the operation needs at least, alone and unfused, with past tokens in the cache.
func (o Operation) Cost(past int) Cost {
	b, t, q, K, N, NH := int64(o.batch), int64(o.Rows), int64(o.Queries), int64(o.K), int64(o.N), int64(o.heads)
	R := b * t
	switch o.Op {
	case OpEmbed:
		return Cost{FLOPs: R * N, Weights: R*N + t*N, Activations: R * N}
	case OpLayerNorm: // 7 per element: sum; difference, square, sum; scale, gain, bias
		return Cost{FLOPs: 7 * R * N, Weights: onlyIf(R, 2*N), Activations: 2 * R * N}
	case OpLinear: // for each output 2 K for the products, 1 for the bias
		outputs, columns := R*N, onlyIf(R, N)
		switch o.Stage {
		case StageLMHead: // has no bias
			return Cost{FLOPs: outputs * 2 * K, Weights: columns * K, Activations: R*K + outputs}
		case StageCAttn: // keys and values of all rows, queries of some
			outputs, columns = b*(2*t+q)*K, onlyIf(t, 2*K)+onlyIf(q, K)
		}
		return Cost{FLOPs: outputs * (2*K + 1), Weights: columns * (K + 1), Activations: R*K + outputs}
	case OpAttention:
		// Queries are the last of the new tokens, each over all keys up to itself: 4 C per pair for q.k and p.v, and 6 NH for
		// scale and softmax (scale, maximum, difference, exponential, sum, quotient). The new rows of K and V go into the
		// cache; those of the past are read from it.
		last := int64(past) + t                         // keys of the last query
		pairs := b * (q*last - q*(q-1)/2)               // sum over queries of their keys
		reads := b * (q*N + 2*t*N)                      // q, k, v of the new tokens
		cache := b*2*t*N + onlyIf(q, b*2*N*int64(past)) // written, and the past read
		return Cost{FLOPs: pairs * (4*N + 6*NH), Activations: reads + b*q*N, KV: cache}
	case OpActivation:
		return Cost{FLOPs: R * N * activationFLOPs[o.Activation], Activations: 2 * R * N}
	case OpAdd:
		return Cost{FLOPs: R * N, Activations: 3 * R * N}
	default: // sampling reads a row once and compares; temperature, top-k and top-p work on a part of it and do not count
		return Cost{FLOPs: R * K, Activations: R*K + R}
	}
}

// activationFLOPs are those of an element: gelu_new takes x^2, x^3, factor, sum, factor, tanh, sum and two products.
var activationFLOPs = map[Activation]int64{GELUNew: 9, GELUErf: 5, ReLU: 1, SiLU: 4, QuickGELU: 5}

// onlyIf returns v, or 0 if there are no rows to use it for.
func onlyIf(rows, v int64) int64 {
	if rows == 0 {
		return 0
	}
	return v
}
