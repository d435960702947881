package persistent

import (
	"fmt"
	"math"
	"unsafe"

	"gpt2scope/cuda"
	"gpt2scope/gpt2"
)

// NoKernel is why the persistent kernel cannot run a plan. It matches [cuda.ErrNoKernel].
type NoKernel string

func (e NoKernel) Error() string { return string(e) }

// Is makes it match cuda.ErrNoKernel.
func (e NoKernel) Is(target error) bool { return target == cuda.ErrNoKernel }

// program is a decode plan as the kernel reads it.
type program struct {
	steps   []cuda.PersistentStep
	planned []int           // of each step, that of the plan
	folds   []cuda.FoldArgs // to be launched once
	end     cuda.Ptr        // of the vectors that folds write; the table of steps follows
}

// table is the size of the table of steps, in bytes.
func (p program) table() int64 {
	return cuda.Align(int64(len(p.steps)) * int64(unsafe.Sizeof(cuda.PersistentStep{})))
}

// What the buffers of a plan are to the kernel. A LayerNorm reads the residual stream, and a product that is added to
// it is no step of its own.
var (
	inputs = map[gpt2.Buffer]cuda.PersistentData{gpt2.BufX: cuda.PersistentResidual, gpt2.BufAttn: cuda.PersistentAttended,
		gpt2.BufInner: cuda.PersistentHidden}
	outputs = map[gpt2.Buffer]cuda.PersistentData{gpt2.BufX: cuda.PersistentResidual, gpt2.BufQKV: cuda.PersistentQKV,
		gpt2.BufInner:  cuda.PersistentHidden,
		gpt2.BufLogits: cuda.PersistentLogits}
)

// write makes the program of a decode plan, with the vectors that belong to it from an address on. The error is a
// NoKernel if the kernel has no step for one of the plan's.
func (s Session) write(plan *gpt2.Plan, vectors cuda.Ptr) (p program, err error) {
	c := s.Config
	switch {
	case plan.Pass.Batch > cuda.PersistentSequences:
		return p, NoKernel(fmt.Sprintf("there are %d sequences, and its kernel decodes 1 to %d", plan.Pass.Batch,
			cuda.PersistentSequences))
	case c.Activation != gpt2.GELUNew:
		return p, NoKernel(fmt.Sprintf("the model's activation is %s, and its kernel has gelu_new", c.Activation))
	case c.Inner != 4*c.Channels:
		return p, NoKernel(fmt.Sprintf("the MLP is %d wide, and its kernel takes 4 x %d", c.Inner, c.Channels))
	}
	p.end = vectors
	folded := map[string]cuda.FoldArgs{} // by the weights of the product: a layer may run several times
	residual := cuda.PersistentEmbedding // what the next LayerNorm reads
	for i, planned := range plan.Steps {
		var step cuda.PersistentStep
		switch planned.Op() {
		case gpt2.OpEmbed, gpt2.OpSample:
			continue
		case gpt2.OpAttention:
			o := planned.Last()
			if want := 1 / math.Sqrt(float64(c.HeadSize())); math.Abs(o.Scale-want) > 1e-6*want {
				return p, NoKernel(fmt.Sprintf("%s multiplies scores by %.4g, and its kernel by 1/sqrt(%d)", planned.Name(),
					o.Scale, c.HeadSize()))
			}
			step.Kind = cuda.PersistentAttention
			step.KCache, step.VCache = s.Cache(o.Slot)
		case gpt2.OpLinear:
			var norm *gpt2.Operation
			if step, norm, err = s.linear(planned); err != nil {
				return p, err
			}
			if norm == nil {
				break
			}
			step.In, residual = residual, cuda.PersistentResidual
			weight := planned.Ops[1].Weight
			f, done := folded[weight]
			if !done {
				f = cuda.FoldArgs{N: step.N, K: step.K, W: step.W, Gain: s.Param(norm.Weight), Shift: s.Param(norm.Bias),
					Bias: step.Bias, DType: s.DType}
				f.Sums = p.end
				f.Folded = f.Sums + cuda.Ptr(cuda.Align(4*int64(step.N)))
				p.end = f.Folded + cuda.Ptr(cuda.Align(4*int64(step.N)))
				folded[weight] = f
				p.folds = append(p.folds, f)
			}
			step.Gain, step.Sums, step.Bias = f.Gain, f.Sums, f.Folded
		default:
			return p, NoKernel("its kernel has no step for " + planned.Name())
		}
		p.steps, p.planned = append(p.steps, step), append(p.planned, i)
	}
	return p, nil
}

// linear returns the step of a product, and the LayerNorm before it, nil if there is none.
func (s Session) linear(planned gpt2.Step) (step cuda.PersistentStep, norm *gpt2.Operation, err error) {
	step.Kind = cuda.PersistentLinear
	for n, op := range planned.Ops {
		switch op.Op {
		case gpt2.OpLayerNorm:
			norm = &planned.Ops[n]
		case gpt2.OpLinear:
			step.N, step.K, step.W, step.Bias = int32(op.N), int32(op.K), s.Param(op.Weight), s.Param(op.Bias)
		case gpt2.OpActivation:
			step.Act = cuda.GELUTanh // the model has no other
		}
	}
	var known, writes bool
	step.In, known = inputs[planned.Ops[0].In]
	step.Out, writes = outputs[planned.Last().Out]
	if !known || !writes {
		return step, nil, NoKernel("its kernel has no step for " + planned.Name())
	}
	return step, norm, nil
}
