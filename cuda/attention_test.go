package cuda_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"

	"gpt2scope/cuda"
	"gpt2scope/internal/require"
	"gpt2scope/reference"
)

// Attention against its formula in float64: every variant, both types, with and without a past and idle rows. What a
// kernel must not read is NaN: cache rows that no token stands at yet, the rows of qkv that are idle. What it must not
// write is compared bit by bit.

// attentionCase is a shape and the state of the cache; pos of sequence b is pos - b where that is possible.
type attentionCase struct {
	B, T, Q, NH, HS int
	pos, pad, P     int
}

func (c attentionCase) String() string {
	return fmt.Sprintf("B%d_T%d_Q%d_NH%d_HS%d_pos%d_pad%d_P%d", c.B, c.T, c.Q, c.NH, c.HS, c.pos, c.pad, c.P)
}

func (c attentionCase) positions() []int32 {
	p := make([]int32, c.B)
	for b := range p {
		p[b] = int32(max(c.pos-b, 0))
	}
	return p
}

// attentionData is what a launch reads and what it must leave, rounded to a type.
type attentionData struct {
	c          attentionCase
	dt         cuda.DType
	pos        []int32
	ldqkv, ldy int
	scale      float32
	qkv        []float32 // (B*T, ldqkv)
	k, v       []float32 // (B, NH, P, HS): before
	kAfter     []float32
	vAfter     []float32
	y          []float64 // (B*Q, C)
}

func newAttentionData(c attentionCase, dt cuda.DType, seed uint64) *attentionData {
	d := &attentionData{c: c, dt: dt, pos: c.positions(), ldqkv: 3*c.NH*c.HS + 32, ldy: c.NH*c.HS + 16}
	d.scale = float32(1 / math.Sqrt(float64(c.HS)))
	r := rand.New(rand.NewPCG(seed, 77))
	draw := func() float32 {
		x := float32(r.NormFloat64()) * 1.3
		if dt == cuda.BF16 {
			x = bf16(x)
		}
		return x
	}
	nan := float32(math.NaN())
	C := c.NH * c.HS
	d.qkv = make([]float32, c.B*c.T*d.ldqkv)
	for i := range d.qkv {
		row, column := i/d.ldqkv, i%d.ldqkv
		if row%c.T < c.pad || column >= 3*C {
			d.qkv[i] = nan
		} else {
			d.qkv[i] = draw()
		}
	}
	d.k = make([]float32, c.B*c.NH*c.P*c.HS)
	d.v = make([]float32, len(d.k))
	for i := range d.k {
		if int32(i/c.HS%c.P) < d.pos[i/(c.NH*c.P*c.HS)] {
			d.k[i], d.v[i] = draw(), draw()
		} else {
			d.k[i], d.v[i] = nan, nan
		}
	}
	d.solve()
	return d
}

// solve computes what the launch must give, from what is there before.
func (d *attentionData) solve() {
	c := d.c
	C := c.NH * c.HS
	d.kAfter = append([]float32(nil), d.k...)
	d.vAfter = append([]float32(nil), d.v...)
	d.y = make([]float64, c.B*c.Q*C)
	var wait sync.WaitGroup
	free := make(chan struct{}, runtime.NumCPU())
	for head := range c.B * c.NH {
		wait.Add(1)
		free <- struct{}{}
		go func() {
			defer func() { <-free; wait.Done() }()
			b, h := head/c.NH, head%c.NH
			k := d.kAfter[head*c.P*c.HS : (head+1)*c.P*c.HS]
			v := d.vAfter[head*c.P*c.HS : (head+1)*c.P*c.HS]
			for r := c.pad; r < c.T; r++ {
				row := d.qkv[(b*c.T+r)*d.ldqkv:]
				at := (int(d.pos[b]) + r - c.pad) * c.HS
				copy(k[at:at+c.HS], row[C+h*c.HS:])
				copy(v[at:at+c.HS], row[2*C+h*c.HS:])
			}
			live := min(c.Q, c.T-c.pad) // queries that are not idle, the last ones
			keys := int(d.pos[b]) + c.T - c.pad
			q := reference.Rows(d.qkv[h*c.HS:], c.B*c.T, d.ldqkv, c.HS)[(b+1)*c.T-live : (b+1)*c.T]
			for i, y := range reference.Attention(q, reference.Rows(k, keys, c.HS, c.HS), reference.Rows(v, keys, c.HS, c.HS), float64(d.scale)) {
				copy(d.y[((b+1)*c.Q-live+i)*C+h*c.HS:], y)
			}
		}()
	}
	wait.Wait()
}

// attentionRun holds the device arrays of a case.
type attentionRun struct {
	qkv, k, v, y *guarded
	pos, pad     *cuda.Buffer
	args         cuda.AttentionArgs
}

func newAttentionRun(t *testing.T, g *gpu, d *attentionData, variant int) *attentionRun {
	t.Helper()
	c := d.c
	from := func(x []float32) func(int) float32 { return func(i int) float32 { return x[i] } }
	r := &attentionRun{
		qkv: g.floats(len(d.qkv), d.dt, from(d.qkv)),
		k:   g.floats(len(d.k), d.dt, from(d.k)),
		v:   g.floats(len(d.v), d.dt, from(d.v)),
		y:   g.floats(max(c.B*c.Q, 1)*d.ldy, d.dt, nil),
	}
	r.pos = attentionBuffer(t, g, int64(4*c.B))
	r.pad = attentionBuffer(t, g, 4)
	attentionWrite(t, r.pos, d.pos)
	attentionWrite(t, r.pad, []int32{int32(c.pad)})
	r.args = cuda.AttentionArgs{
		Variant: int32(variant), QKV: r.qkv.ptr(), KCache: r.k.ptr(), VCache: r.v.ptr(), Pos: r.pos.Ptr(), Y: r.y.ptr(),
		B: int32(c.B), T: int32(c.T), Q: int32(c.Q), NH: int32(c.NH), HS: int32(c.HS), P: int32(c.P),
		LDQKV: int32(d.ldqkv), LDY: int32(d.ldy), DType: d.dt, Scale: d.scale,
	}
	if c.pad > 0 {
		r.args.Pad = r.pad.Ptr()
	}
	n := require.Value(g.stream.AttentionWork(r.args))(t)
	work := attentionBuffer(t, g, n)
	must(t, work.Write(0, make([]byte, n)))
	r.args.Work = work.Ptr()
	return r
}

func attentionBuffer(t *testing.T, g *gpu, n int64) *cuda.Buffer {
	t.Helper()
	b := require.Value(g.dev.Alloc(n))(t)
	t.Cleanup(func() {
		if err := b.Free(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func attentionWrite(t *testing.T, b *cuda.Buffer, x []int32) {
	t.Helper()
	var raw []byte
	for _, v := range x {
		raw = binary.LittleEndian.AppendUint32(raw, uint32(v))
	}
	must(t, b.Write(0, raw))
}

// check compares the outputs and the cache; it returns y for comparing runs.
func (r *attentionRun) check(t *testing.T, d *attentionData) []float32 {
	t.Helper()
	c := d.c
	for _, x := range []struct {
		name string
		got  []float32
		want []float32
	}{{"k cache", r.k.get(), d.kAfter}, {"v cache", r.v.get(), d.vAfter}} {
		for i, w := range x.want {
			if got := x.got[i]; got != w && !(got != got && w != w) {
				t.Fatalf("%s: row %d of sequence and head %d, column %d: %g, not %g", x.name, i/c.HS%c.P, i/(c.HS*c.P), i%c.HS, got, w)
			}
		}
	}
	return r.checkY(t, d)
}

func (r *attentionRun) checkY(t *testing.T, d *attentionData) []float32 {
	t.Helper()
	c, C := d.c, d.c.NH*d.c.HS
	// bfloat16: half a unit of 2^-8 from the output, about as much from rounding the probabilities, of the largest value
	// of the row. float32: the scores carry some 1e-7 of their own size, 10 or so, into the exponent.
	tolerance := 1e-5
	if d.dt == cuda.BF16 {
		tolerance = 1e-2
	}
	y := r.y.get()
	for row := range c.B * c.Q {
		for h := range c.NH {
			got := y[row*d.ldy+h*c.HS:][:c.HS]
			want := d.y[row*C+h*c.HS:][:c.HS]
			largest := 0.0
			for _, w := range want {
				largest = max(largest, math.Abs(w))
			}
			for e, w := range want {
				if diff := math.Abs(float64(got[e]) - w); !(diff <= tolerance*largest) {
					t.Fatalf("y of row %d, head %d, column %d: %g, not %g (largest of the row %g)", row, h, e, got[e], w, largest)
				}
			}
		}
		for e := C; e < d.ldy; e++ {
			if x := y[row*d.ldy+e]; x == x {
				t.Fatalf("y: the gap after row %d was overwritten at column %d with %g", row, e, x)
			}
		}
	}
	return y
}

// attentionCases cover decoding, prefill for the last row alone, for all rows and for none.
func attentionCases() []attentionCase {
	var cases []attentionCase
	add := func(c attentionCase) {
		if c.P == 0 {
			c.P = c.pos + c.T + 3
		}
		cases = append(cases, c)
	}
	for _, pos := range []int{0, 1, 15, 16, 63, 64, 511, 1023} {
		add(attentionCase{B: 1, T: 1, Q: 1, NH: 12, HS: 64, pos: pos, P: 1024})
	}
	for _, hs := range []int{8, 48, 64, 80, 96, 128, 200, 512} {
		add(attentionCase{B: 3, T: 1, Q: 1, NH: 3, HS: hs, pos: 130, P: 131})
	}
	add(attentionCase{B: 4, T: 1, Q: 1, NH: 12, HS: 64, pos: 700, P: 1024})
	add(attentionCase{B: 1, T: 1, Q: 1, NH: 1, HS: 64, pos: 9, pad: 1, P: 16})
	for _, q := range []int{0, 1} {
		for _, n := range []int{7, 130} {
			add(attentionCase{B: 1, T: n, Q: q, NH: 12, HS: 64})
			add(attentionCase{B: 3, T: n, Q: q, NH: 3, HS: 64, pos: 5, pad: 2})
			add(attentionCase{B: 2, T: n, Q: q, NH: 3, HS: 80, pos: 5})
		}
	}
	add(attentionCase{B: 2, T: 5, Q: 1, NH: 3, HS: 64, pos: 6, pad: 5})
	for _, n := range []int{2, 17, 64, 65, 128, 200} {
		for _, pos := range []int{0, 37} {
			add(attentionCase{B: 1, T: n, Q: n, NH: 12, HS: 64, pos: pos})
			add(attentionCase{B: 3, T: n, Q: n, NH: 1, HS: 64, pos: pos, pad: n / 2})
		}
	}
	for _, hs := range []int{8, 48, 80, 96, 128, 200, 512} {
		add(attentionCase{B: 1, T: 200, Q: 200, NH: 3, HS: hs, pos: 37, P: 237})
		add(attentionCase{B: 3, T: 65, Q: 65, NH: 3, HS: hs, pad: 7})
	}
	for n := 3; n <= 8; n++ {
		add(attentionCase{B: 2, T: n, Q: n, NH: 2, HS: 64, pos: 66 - n, pad: n % 3})
	}
	add(attentionCase{B: 1, T: 1024, Q: 1024, NH: 12, HS: 64, P: 1024})
	add(attentionCase{B: 3, T: 1024, Q: 1024, NH: 1, HS: 64, P: 1061, pos: 37})
	add(attentionCase{B: 1, T: 1024, Q: 1024, NH: 2, HS: 64, P: 1024, pad: 600})
	add(attentionCase{B: 2, T: 300, Q: 300, NH: 3, HS: 128, P: 700, pos: 333})
	// More tiles of 128 queries than two for each SM.
	add(attentionCase{B: 8, T: 300, Q: 300, NH: 16, HS: 64, pos: 37})
	add(attentionCase{B: 8, T: 300, Q: 300, NH: 16, HS: 48, pad: 7})
	return cases
}

// attentionTakes says whether a variant is for a case; the launcher must refuse exactly the others.
func attentionTakes(name string, c attentionCase, dt cuda.DType, hopper bool) bool {
	switch {
	case (name == "wgmma" || name == "queue") && c.Q != 0 && (dt != cuda.BF16 || c.HS != 64 || !hopper):
		return false
	case name == "auto" || name == "naive" || c.Q == 0:
		return true
	case c.HS > 128:
		return false
	case name == "split":
		return c.Q == 1
	}
	return c.Q == c.T && c.T > 1
}

func TestAttention(t *testing.T) {
	g := open(t)
	names := g.lib.Variants(cuda.OpAttention)
	if want := "auto naive split flash wgmma queue"; strings.Join(names, " ") != want {
		t.Fatalf("variants %v are not %s", names, want)
	}
	for i, c := range attentionCases() {
		for _, dt := range []cuda.DType{cuda.F32, cuda.BF16} {
			t.Run(fmt.Sprintf("%v_type%d", c, dt), func(t *testing.T) {
				d := newAttentionData(c, dt, uint64(i))
				for variant, name := range names {
					t.Run(name, func(t *testing.T) {
						g := open(t)
						r := newAttentionRun(t, g, d, variant)
						err := g.stream.Attention(r.args)
						if !attentionTakes(name, c, dt, g.hopper()) {
							if err == nil {
								t.Fatal("a shape that the variant is not for was taken")
							}
							return
						}
						must(t, err)
						first := r.check(t, d)
						must(t, g.stream.Attention(r.args))
						for i, x := range r.check(t, d) {
							if math.Float32bits(x) != math.Float32bits(first[i]) {
								t.Fatalf("y[%d] is %g, and %g when run again", i, first[i], x)
							}
						}
					})
				}
			})
		}
	}
}

// Rows that are not whole 16-byte chunks: the plain kernel, and no other.
func TestAttentionOddRows(t *testing.T) {
	g := open(t)
	for _, dt := range []cuda.DType{cuda.F32, cuda.BF16} {
		for _, c := range []attentionCase{
			{B: 2, T: 1, Q: 1, NH: 3, HS: 5, pos: 20, P: 33},
			{B: 2, T: 19, Q: 19, NH: 3, HS: 5, pos: 4, P: 33, pad: 3},
			{B: 1, T: 19, Q: 1, NH: 2, HS: 125, pos: 4, P: 33},
		} {
			d := newAttentionData(c, dt, 9)
			for variant := range 2 {
				r := newAttentionRun(t, g, d, variant)
				if err := g.stream.Attention(r.args); err != nil {
					t.Fatalf("%v: %v", c, err)
				}
				r.check(t, d)
			}
		}
		d := newAttentionData(attentionCase{B: 1, T: 19, Q: 19, NH: 2, HS: 5, P: 33}, dt, 9)
		for _, variant := range []int{2, 3} {
			if err := g.stream.Attention(newAttentionRun(t, g, d, variant).args); err == nil {
				t.Fatalf("variant %d took rows that are not whole 16-byte chunks", variant)
			}
		}
	}
}
