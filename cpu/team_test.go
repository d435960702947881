package cpu

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"gpt2scope/gpt2"
	"gpt2scope/weights"
)

// Arrays that threads take in chunks are computed right to the last value, whatever is left for the last chunk.
func TestTeamChunks(t *testing.T) {
	p := testPool(t, 3, supportedISAs()[0])
	const most = 1<<21 + 3*1<<15 + 70_001
	x, y, z := make([]float32, most), make([]float32, most), make([]float32, most+1)
	for i := range x {
		x[i], y[i] = float32(i%1021), float32(i%7)
	}
	partial := make([]float32, (most+SumBlock-1)/SumBlock)
	for _, past := range []int64{0, 1} {
		team := &Team{p, past}
		for _, n := range []int{1 << 21, 1<<21 + 1, 1<<21 + 1<<15, most} {
			clear(z)
			z[n] = 0.5
			must(t, team.Add(z[:n], x[:n], y[:n]))
			for i := range n {
				if z[i] != x[i]+y[i] {
					t.Fatalf("n=%d: z[%d] = %g; want %g + %g", n, i, z[i], x[i], y[i])
				}
			}
			if z[n] != 0.5 {
				t.Fatalf("n=%d: a value after the end was written", n)
			}
			want := 0.0
			for _, v := range y[:n] {
				want += float64(v)
			}
			if got, err := team.Sum(y[:n], partial); err != nil || math.Abs(float64(got)-want) > 1e-6*want {
				t.Fatalf("sum of %d: %g, %v; want %g", n, got, err, want)
			}
		}
	}
}

// Results are stored past the caches where these do not keep them for the threads.
func TestPastCaches(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		levels []Cache
		want   int64
	}{
		{nil, 0},
		{[]Cache{{1, mib}, {2, 2 * mib}, {3, 32 * mib}}, 32 * mib},
		{[]Cache{{1, mib}, {2, 32 * mib}, {3, 300 * mib}}, 32 * mib},
		{[]Cache{{1, mib}, {2, 128 * mib}, {3, 400 * mib}}, 128 * mib},
		{[]Cache{{1, mib}, {2, 4 * mib}, {3, 16 * mib}}, 16 * mib},
		{[]Cache{{2, 8 * mib}}, 8 * mib},
	} {
		if got := pastCaches(c.levels); got != c.want {
			t.Errorf("%v: from %d MiB on; want %d", c.levels, got/mib, c.want/mib)
		}
	}
}

// Arrays are computed right by every version of the kernels, at lengths around all blocks, at any alignment, with and
// without stores past the caches, and alike with any number of threads.
func TestTeamArrays(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const most = 140_000
	x, y := make([]float32, most), make([]float32, most)
	for i := range x {
		x[i], y[i] = random.Float32()-0.5, random.Float32()-0.5
	}
	words := make([]uint16, most)
	for i := range words {
		words[i] = uint16(random.Uint32())
	}
	for _, version := range supportedISAs() {
		sums := map[int]float32{}
		for _, threads := range []int{1, 3} {
			p := testPool(t, threads, version)
			for _, past := range []int64{0, 1} { // the second writes all past the caches
				team := &Team{p, past}
				for _, n := range []int{1, 15, 16, 17, 63, 64, 65, 1024, 4095, 4097, 65535, 65536, most - 3} {
					for off := range 3 {
						z := make([]float32, n+1)
						z[n] = 7
						in, other := x[off:off+n], y[2:2+n]
						must(t, team.Add(z[:n], in, other))
						for i := range n {
							if z[i] != in[i]+other[i] {
								t.Fatalf("%s, %d threads, n=%d: z[%d] = %g; want %g + %g", version, threads, n, i, z[i], in[i], other[i])
							}
						}
						clear(z[:n])
						must(t, team.Square(z[:n], in))
						for i := range n {
							if math.Abs(float64(z[i])-float64(in[i])*float64(in[i])) > 0x1p-24*float64(in[i])*float64(in[i]) {
								t.Fatalf("%s: n=%d: z[%d] = %g; want the square of %g", version, n, i, z[i], in[i])
							}
						}
						must(t, team.Widen(z[:n], words[off:off+n]))
						for i, w := range words[off : off+n] {
							if math.Float32bits(z[i]) != uint32(w)<<16 {
								t.Fatalf("%s, %d threads, n=%d: z[%d] = %g; want that of %#x", version, threads, n, i, z[i], w)
							}
						}
						if z[n] != 7 {
							t.Fatalf("%s: n=%d: a value after the end was written", version, n)
						}
					}
					partial := make([]float32, (n+SumBlock-1)/SumBlock)
					got, err := team.Sum(x[:n], partial)
					want, size := 0.0, 0.0
					for _, v := range x[:n] {
						want, size = want+float64(v), size+math.Abs(float64(v))
					}
					if err != nil || math.Abs(float64(got)-want) > 1e-6*size {
						t.Fatalf("%s: sum of %d: %g, %v; want %g", version, n, got, err, want)
					}
					if before, ok := sums[n]; ok && before != got {
						t.Errorf("%s: the sum of %d is %g with %d threads, and was %g", version, n, got, threads, before)
					}
					sums[n] = got
				}
			}
			p.close()
		}
	}
}

// Lengths that differ are refused, and so is a team whose backend is closed.
func TestTeamErrors(t *testing.T) {
	backend := newBackend(t, Options{Threads: 2})
	team := backend.Team()
	a, b := make([]float32, 5), make([]float32, 6)
	for what, err := range map[string]error{"Add": team.Add(a, a, b), "Add, x": team.Add(a, b, a),
		"Square": team.Square(a, b),
		"Widen":  team.Widen(a, make([]uint16, 6))} {
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	if _, err := team.Sum(b, nil); err == nil {
		t.Error("Sum: no room for partial sums, and no error")
	}
	must(t, backend.Close())
	if team.Add(a, a, a) == nil {
		t.Error("threads that have ended added")
	}
	if _, err := team.Sum(a, b); err == nil {
		t.Error("threads that have ended summed")
	}
	if team.Widen(a, make([]uint16, 5)) == nil {
		t.Error("threads that have ended widened")
	}
}

// Matrix products are those of the formula, with float32 and bfloat16.
func TestTeamProduct(t *testing.T) {
	backend := newBackend(t, Options{Threads: 2})
	team := backend.Team()
	random := rand.New(rand.NewPCG(5, 6))
	for _, s := range [][3]int{{1, 1, 1}, {3, 33, 7}, {17, 64, 31}, {100, 50, 96}} {
		m, n, k := s[0], s[1], s[2]
		for _, d := range []weights.DType{weights.F32, weights.BF16} {
			a, c := newMemory(t, 4*m*k), newMemory(t, 4*m*n)
			av, cv := a.data.slice(), c.data.slice()
			for i := range av {
				av[i] = float32(random.IntN(17)-8) / 8 // exact as bfloat16 too
			}
			b := make([]float32, k*n)
			raw := unsafe.Slice((*byte)(unsafe.Pointer(&b[0])), 4*k*n)
			words := make([]uint16, k*n)
			for i := range b {
				b[i] = float32(random.IntN(17)-8) / 8
				words[i] = weights.Float32ToBFloat16(b[i])
			}
			if d == weights.BF16 {
				raw = unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 2*k*n)
			}
			p, err := team.NewProduct(m, n, k, d, a, c)
			must(t, err)
			must(t, p.Pack(raw))
			must(t, p.Run())
			for i := range m {
				for j := range n {
					want := 0.0
					for l := range k {
						want += float64(av[i*k+l]) * float64(b[j*k+l])
					}
					if got := float64(cv[i*n+j]); math.Abs(got-want) > 1e-5*float64(k) {
						t.Fatalf("%v, %v: C[%d][%d] = %g; want %g", s, d, i, j, got, want)
					}
				}
			}
			p.Close()
			if _, err := team.NewProduct(m+1, n, k, d, a, c); err == nil {
				t.Error("matrices that are too small are taken")
			}
		}
	}
}

func newMemory(t *testing.T, bytes int) *Memory {
	t.Helper()
	m, err := NewMemory(int64(bytes))
	must(t, err)
	t.Cleanup(m.Free)
	return m
}

// Backends of two types run on the same threads, which end with the backend that has started them.
func TestShare(t *testing.T) {
	first := newBackend(t, Options{Threads: 2})
	second := newBackend(t, Options{Threads: 7, DType: weights.BF16, Share: first})
	if second.Threads() != 2 || second.Describe().WeightType == first.Describe().WeightType {
		t.Errorf("%d threads, types %s and %s", second.Threads(), first.Describe().WeightType, second.Describe().WeightType)
	}
	model := newModel(t, "random:L=1,C=16,NH=2,V=40,T=16")
	run := func(b *Backend) error {
		s, err := gpt2.NewSession(context.Background(), model, b, gpt2.Options{})
		if err != nil {
			return err
		}
		defer s.Close()
		for _, err := range s.Generate(context.Background(), []int32{1, 2}, gpt2.Generation{Tokens: 3, IgnoreEOS: true}) {
			if err != nil {
				return err
			}
		}
		return nil
	}
	for range 3 {
		must(t, errors.Join(run(first), run(second)))
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	if err := run(first); err != nil {
		t.Errorf("after the other backend was closed: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if run(first) == nil {
		t.Error("the threads of a closed backend ran")
	}
}
