package exec

import (
	"gpt2scope/cuda"
	"gpt2scope/gpt2"
)

// cacheBytes is the size of a session's KV cache. One in 8 bits has after it room for a slot in bfloat16, in which
// prompts work.
func (b *Backend) cacheBytes(c gpt2.Config, o gpt2.Options) int64 {
	half, wide := b.halfBytes(c, o)
	return 2 * (int64(len(o.Layers))*half + wide)
}

// halfBytes is the size of the keys of a slot of the run order, and of those in the room of prompts.
func (b *Backend) halfBytes(c gpt2.Config, o gpt2.Options) (half, wide int64) {
	rows := int64(o.Batch) * int64(o.Context)
	half = rows * int64(c.Channels) * int64(b.dtype.Size())
	if b.options.KVQ8 {
		return cuda.Align(rows * int64(c.Channels+4*c.Heads)), half
	}
	return half, 0
}

// workBytes are the sizes of the workspaces of sampling and attention, for any pass.
func (b *Backend) workBytes(s *cuda.Stream, c gpt2.Config, o gpt2.Options) (sample, attention int64, err error) {
	sample, err = s.SampleWork(cuda.SampleArgs{B: int32(o.Batch), V: int32(c.Vocab), LD: int32(padVocab(c.Vocab)), T: 1,
		Count: ringSlots})
	if err != nil {
		return 0, 0, err
	}
	for _, tq := range [][2]int{{1, 1}, {o.Context, 1}, {o.Context, o.Context}} {
		n, err := s.AttentionWork(cuda.AttentionArgs{B: int32(o.Batch), T: int32(tq[0]), Q: int32(tq[1]), NH: int32(c.Heads),
			HS: int32(c.HeadSize()),
			P:  int32(o.Context), LDQKV: int32(3 * c.Channels), LDY: int32(c.Channels), DType: b.dtype})
		if err != nil {
			return 0, 0, err
		}
		attention = max(attention, n)
	}
	return max(sample, 16), max(attention, 16), nil
}

// widenedBytes is the room for 8-bit weights in bfloat16, which products of many rows take: for the largest matrix of a
// layer. lm_head passes through it part by part.
func (b *Backend) widenedBytes(c gpt2.Config) int64 {
	if b.held != cuda.Q8 {
		return 0
	}
	return 2 * int64(c.Channels) * int64(max(3*c.Channels, c.Inner))
}

// bufferBytes is the size of a buffer in passes of a plan, 0 if the plan does not use it.
func (b *Backend) bufferBytes(buffer gpt2.Buffer, plan *gpt2.Plan) int64 {
	if buffer == gpt2.BufTokens {
		return 0
	}
	return int64(plan.Pass.Batch) * int64(plan.Buffers[buffer].Rows) * int64(pitch(buffer, plan)) * int64(b.typeOf(buffer,
		plan).Size())
}

// executed returns the pass that runs in place of a pass. In modes that capture, and with decode=steps, whose results
// are those of such a mode, a prompt is padded at its front, unless all rows of logits are wanted; a decode step never
// is.
// context is the capacity of the cache in tokens.
func (b *Backend) executed(pass gpt2.Pass, context int) gpt2.Pass {
	if (b.mode.captures() || b.singleSteps) && !pass.IsDecode() && pass.Until == "" && pass.Logits != gpt2.LogitsAll {
		pass.Tokens = bucket(pass.Batch, pass.Tokens, context)
	}
	return pass
}

// bucket returns the tokens per sequence of the captured pass that runs a prompt of T tokens: T itself for few rows,
// else 16, 32 or a multiple of 64, and at most capacity.
func bucket(batch, T, capacity int) int {
	switch {
	case batch*T <= cuda.GEMVRows:
		return T
	case T <= 16:
		return max(T, min(16, capacity))
	case T <= 32:
		return max(T, min(32, capacity))
	}
	return max(T, min((T+63)/64*64, capacity))
}
