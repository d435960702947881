package cuda_test

import (
	"encoding/binary"
	"math"
	"testing"

	"gpt2scope/cuda"
)

// rounded8 rounds a row to integers of 8 bits and a scale, and returns what they stand for.
func rounded8(row []float32) (values []float32, integers []int8, scale float32) {
	for _, x := range row {
		scale = max(scale, float32(math.Abs(float64(x)))/127)
	}
	for _, x := range row {
		q := int8(math.RoundToEven(float64(x) * float64(1/scale)))
		integers, values = append(integers, q), append(values, float32(q)*scale)
	}
	return values, integers, scale
}

// TestAttentionQ8: with a cache in 8 bits attention is the formula's over what the cache stands for; a prompt's own rows
// count as they were, and come into the cache rounded. What the kernels must not read of it is NaN.
func TestAttentionQ8(t *testing.T) {
	for i, c := range attentionCases() {
		if c.HS%16 != 0 || c.HS > 128 {
			continue
		}
		t.Run(c.String(), func(t *testing.T) {
			g := open(t)
			d := newAttentionData(c, cuda.BF16, uint64(i))
			rows, size := c.B*c.NH*c.P, int64(c.B*c.NH*c.P*(c.HS+4))
			C := c.NH * c.HS
			qkv := append([]float32(nil), d.qkv...)
			before := func(x []float32) []byte { // of a cache, whose rows become what they stand for
				raw := make([]byte, size)
				for r := range rows {
					values, integers, scale := rounded8(x[r*c.HS : (r+1)*c.HS])
					if int32(r%c.P) >= d.pos[r/(c.NH*c.P)] {
						scale = float32(math.NaN())
					} else {
						copy(x[r*c.HS:], values)
					}
					for e, q := range integers {
						raw[r*c.HS+e] = byte(q)
					}
					binary.LittleEndian.PutUint32(raw[rows*c.HS+4*r:], math.Float32bits(scale))
				}
				return raw
			}
			k, v := before(d.k), before(d.v)
			for _, cache := range [][]float32{d.k, d.v} { // prompts widen it to bfloat16
				for i := range cache {
					if c.T > 1 {
						cache[i] = bf16(cache[i])
					}
				}
			}
			if c.T == 1 && c.pad == 0 {
				for b := range c.B {
					for h := range 2 * c.NH {
						values, _, _ := rounded8(qkv[b*d.ldqkv+C+h*c.HS:][:c.HS])
						copy(d.qkv[b*d.ldqkv+C+h*c.HS:], values)
					}
				}
			}
			d.solve()
			copy(d.qkv, qkv)
			r := newAttentionRun(t, g, d, 0)
			keys, values := attentionBuffer(t, g, size), attentionBuffer(t, g, size)
			wide := attentionBuffer(t, g, int64(4*rows*c.HS))
			must(t, keys.Write(0, k))
			must(t, values.Write(0, v))
			r.args.KCache, r.args.VCache, r.args.Wide = keys.Ptr(), values.Ptr(), wide.Ptr()
			must(t, g.stream.Attention(r.args))
			r.checkY(t, d)
			for name, of := range map[string]struct {
				got    *cuda.Buffer
				before []byte
				column int
			}{"keys": {keys, k, C}, "values": {values, v, 2 * C}} {
				got := make([]byte, size)
				must(t, of.got.Read(0, got))
				for row := range rows {
					b, h, position := row/(c.NH*c.P), row/c.P%c.NH, row%c.P
					want, scale := of.before[row*c.HS:][:c.HS], binary.LittleEndian.Uint32(of.before[rows*c.HS+4*row:])
					if n := position - int(d.pos[b]); n >= 0 && n < c.T-c.pad {
						_, integers, s := rounded8(qkv[(b*c.T+c.pad+n)*d.ldqkv+of.column+h*c.HS:][:c.HS])
						scale = math.Float32bits(s)
						for e, q := range integers {
							if off := int(q) - int(int8(got[row*c.HS+e])); off < -1 || off > 1 { // a tie may go either way
								t.Fatalf("%s: row %d, column %d: %d, not %d", name, row, e, int8(got[row*c.HS+e]), q)
							}
						}
					} else if string(got[row*c.HS:][:c.HS]) != string(want) {
						t.Fatalf("%s: row %d was written", name, row)
					}
					if s := math.Float32frombits(binary.LittleEndian.Uint32(got[rows*c.HS+4*row:])); math.Abs(float64(s/math.Float32frombits(scale)-1)) > 1e-6 {
						t.Fatalf("%s: row %d has the scale %g, not %g", name, row, s, math.Float32frombits(scale))
					}
				}
			}
			r.args.Variant = 1
			if err := g.stream.Attention(r.args); (err != nil) != (c.T == 1) {
				t.Errorf("variant naive: %v", err)
			}
			if r.args.HS = 8; g.stream.Attention(r.args) == nil {
				t.Error("heads of 8 values were taken")
			}
		})
	}
}
