package workbench

import (
	"cmp"
	"encoding/binary"
	"math"

	"gpt2scope/cuda"
	"gpt2scope/gpt2"
)

// sample draws greedily and with each restriction of the choice. A token is right where the restriction allows it; its
// error is 0 or infinite.
func (b *bench) sample() trials {
	const slots = 64
	B, V := b.B, b.Config.Vocab
	logits := b.numbers(B*V, cuda.F32, b.sets, 8)
	state, pos, tokens := b.alloc(256), b.ints(make([]int32, B)), b.ints(make([]int32, B))
	var ring *cuda.HostBuffer
	if b.err == nil {
		ring, b.err = b.AllocHost(int64(slots * B * binary.Size(cuda.Slot{})))
	}
	b.tolerance = 0
	args := func(variant int32, set int) cuda.SampleArgs {
		return cuda.SampleArgs{Variant: variant, Logits: logits.ptr(set), Sampling: state.Ptr(), Pos: pos.Ptr(),
			Tokens: tokens.Ptr(), Slots: ring.Ptr(),
			B: int32(B), V: int32(V), LD: int32(V), T: 1, Count: slots}
	}
	return func(variant int32, _ string) []trial {
		var list []trial
		for _, how := range []struct {
			name string
			cuda.Sampling
		}{
			{"greedy", cuda.Sampling{}},
			{"temperature 1", cuda.Sampling{Temperature: 1, Seed: 7}},
			{"temperature 1, top-k 40", cuda.Sampling{Temperature: 1, Seed: 7, TopK: 40}},
			{"temperature 1, top-p 0.95", cuda.Sampling{Temperature: 1, Seed: 7, TopP: 0.95}},
		} {
			var work *cuda.Buffer
			list = append(list, trial{
				parameters: how.name,
				before: func() error {
					bytes, err := b.Stream.SampleWork(args(variant, 0))
					if err != nil {
						return err
					}
					if work, err = b.zeroed(bytes); err != nil {
						return err
					}
					data, err := binary.Append(nil, binary.LittleEndian, how.Sampling)
					return cmp.Or(err, state.Write(0, data),
						b.Stream.Set(tokens, 0, 0xff, tokens.Size()), b.Stream.Set(pos, 0, 0, pos.Size()), b.Stream.Synchronize())
				},
				launch: func(set int) error {
					a := args(variant, set)
					a.Work = work.Ptr()
					return b.Stream.Sample(a)
				},
				check: func() (float64, error) {
					data := make([]byte, 4*B)
					if err := tokens.Read(0, data); err != nil {
						return 0, err
					}
					var sampler gpt2.Sampler
					for i := range B {
						token := int32(binary.LittleEndian.Uint32(data[4*i:]))
						all, err := sampler.Sample(gpt2.Sampling{TopLogProbs: V}, logits.host[i*V:][:V], i, 0)
						if err != nil {
							return 0, err
						}
						at, kept, sum := 0, min(V, cmp.Or(int(how.TopK), V)), 0.0
						if how.Temperature == 0 {
							kept = 1
						}
						for ; at < kept && all.Top[at].ID != token; at++ {
							sum += math.Exp(float64(all.Top[at].LogProb))
						}
						// A sum of probabilities that rounding puts on the other side of top-p is right too.
						if at == kept || sum > cmp.Or(how.TopP, 1)*(1+1e-6) {
							return math.Inf(1), nil
						}
					}
					return 0, nil
				},
			})
		}
		return list
	}
}
