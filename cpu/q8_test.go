package cpu

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// block reads the scale and the integer of an 8-bit weight by the layout that kernels.h documents.
func (w *weight) block(k, n int) (d float32, q int) {
	const bytes = 1088
	words := w.data.slice()[(n/32*((w.K+31)/32)+k/32)*bytes/4:][:bytes/4]
	at := func(i int) byte { return byte(math.Float32bits(words[i/4]) >> (i % 4 * 8)) }
	column := n % 32
	scale := (column%16*2 + column/16) * 2
	d = fromBF16(uint16(at(scale)) | uint16(at(scale+1))<<8)
	return d, int(at(64+k%32/4*128+column*4+k%4)) - 128
}

// quantised checks the blocks of an 8-bit weight against the values that it was packed from, and replaces the values by
// those of the blocks. A scale is 1/127 of the largest value of its block, as a bfloat16; a weight is off by at most
// half the scale.
func quantised(t *testing.T, w *weight, values []float32) {
	t.Helper()
	for n := range w.N {
		for k0 := 0; k0 < w.K; k0 += 32 {
			most := float32(0)
			for k := k0; k < min(k0+32, w.K); k++ {
				most = max(most, float32(math.Abs(float64(values[k*w.N+n]))))
			}
			want := float64(most) / 127
			for k := k0; k < min(k0+32, w.K); k++ {
				d, q := w.block(k, n)
				v := values[k*w.N+n]
				near(t, d, want, want/256*(1+1e-6), "the scale of W[%d][%d]", k, n)
				near(t, d*float32(q), float64(v), float64(d)/2*(1+1e-4), "W[%d][%d], with scale %g", k, n, d)
				if q < -127 || q > 127 {
					t.Fatalf("W[%d][%d] is held as %d", k, n, q)
				}
				values[k*w.N+n] = w.at(k, n)
			}
		}
	}
}

// rowsOfTile is the most rows whose product is that of a decode step: GS_MR of each version.
var rowsOfTile = map[isa]int{portable: 4, neon: 6, neonDot: 6, avx2: 6, avx2VNNI: 6, avx512: 12, avx512VNNI: 12,
	avx512BF16: 12, amx: 12}

// roundsRows tells whether a product of so many rows with 8-bit weights rounds the rows to 8 bits.
func roundsRows(p *pool, rows int) bool { return rows <= rowsOfTile[p.isa] || p.isa.multipliesBytes() }

// roundsTo is for how many values of a row such a product of so many rows has a scale.
func roundsTo(p *pool, rows int) int {
	if p.isa == amx && rows > rowsOfTile[amx] {
		return 128
	}
	return 32
}

// grouped returns the weights as products of many rows on AMX tiles take them: blocks of 128 rows with the largest
// scale of theirs, for each column (tile_int8.h).
func (w *weight) grouped() []float32 {
	values := make([]float32, w.K*w.N)
	for i := range values {
		k, n := i/w.N, i%w.N
		most := float32(0)
		for b := k / 128 * 128; b < min(w.K, k/128*128+128); b += 32 {
			d, _ := w.block(b, n)
			most = max(most, d)
		}
		if d, q := w.block(k, n); most > 0 {
			ratio := min(0x7fff, int(math.RoundToEven(float64(d/most*0x1p15))))
			values[i] = most * float32((q*ratio+0x4000)>>15)
		}
	}
	return values
}

// roundedRow rounds a row to 8-bit integers times a scale for each block of so many. slack is the error allowed of the
// row's product with weights of the given sizes: a value near a tie of two integers may be rounded either way, by an
// error of the row (up to `relative` of it) or of the division.
func roundedRow(x []float64, size int, relative float64, weight func(k int) float64) (rounded []float64,
	slack float64) {
	rounded = make([]float64, len(x))
	for k0 := 0; k0 < len(x); k0 += size {
		block := x[k0:min(k0+size, len(x))]
		most := 0.0
		for _, v := range block {
			most = math.Max(most, math.Abs(v))
		}
		if most == 0 {
			continue
		}
		d := most / 127
		for i, v := range block {
			rounded[k0+i] = d * math.RoundToEven(v/d)
			fraction := math.Abs(v/d - math.Floor(v/d) - 0.5) // from a tie
			if fraction < 1e-4+2*relative*(math.Abs(v)+3)/d {
				slack += d * weight(k0+i)
			}
			slack += (2*eps32 + relative) * math.Abs(rounded[k0+i]) * weight(k0+i) // of d
		}
	}
	return rounded, slack
}

// Extreme weights and activations give no wrong numbers: zeros stay zeros, blocks too small for a scale become zero,
// huge values stay right, NaN and infinity become NaN, each in its own column or row only.
func TestQ8Extremes(t *testing.T) {
	eachISA(t, func(t *testing.T, pools []*pool) {
		const K, N, M = 70, 40, 4
		r := rand.New(rand.NewPCG(8, 1))
		values := make([]float32, K*N)
		for i := range values {
			values[i] = float32(r.NormFloat64())
		}
		for k := range 32 { // the first block of some columns
			values[k*N+1] = 0
			values[k*N+2] = math.SmallestNonzeroFloat32 * float32(k)
			values[k*N+3] *= 1e37
			values[k*N+4] *= 1e-30
			values[k*N+5] = 0x1p-121 * float32(k%5-2) // its scale would be subnormal
		}
		values[5*N+7], values[37*N+33], values[69*N+39] = float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))
		sick := map[int]bool{7: true, 33: true, 39: true}
		var src []byte
		for _, v := range values {
			src = binary.LittleEndian.AppendUint32(src, math.Float32bits(v))
		}
		w := testWeight(t, K, N, q8Type, false)
		if bad, err := w.pack(pools[1], src, float32Type, false, 0, K); bad != 3 || err != nil {
			t.Fatalf("%d bad values, error %v; want 3", bad, err)
		}
		for n := range N {
			for k := range K {
				v, d := values[k*N+n], float64(0)
				if sick[n] {
					continue
				}
				for i := k / 32 * 32; i < min(K, k/32*32+32); i++ {
					d = math.Max(d, math.Abs(float64(values[i*N+n])/127))
				}
				if (n == 2 || n == 5) && k < 32 {
					v = 0
				}
				near(t, w.at(k, n), float64(v), d*0.502, "W[%d][%d]", k, n)
			}
		}
		x, y := newGuarded(t, M*K).random(r, 1), newGuarded(t, M*N)
		for k := range K {
			x.slice()[k] = 0
			x.slice()[K+k] *= 1e-42
			x.slice()[2*K+k] *= 1e30
		}
		for _, broken := range []float64{0, math.NaN(), math.Inf(1), math.Inf(-1)} {
			if broken != 0 {
				x.slice()[3*K+69] = float32(broken)
			}
			got := onAll(t, pools, y, nil, func(p *program) error {
				return p.linear(linearStep{x: matrix(x.mem, K), y: matrix(y.mem, N), w: w, M: M})
			})
			for m := range M {
				for n := range N {
					v := got[m*N+n]
					if sick[n] || m == 3 && broken != 0 {
						if v == v {
							t.Fatalf("y[%d][%d] = %v of a NaN", m, n, v)
						}
						continue
					}
					var want, tol float64
					q, slack := roundedRow(float64s(x.slice()[m*K:][:K]), 32, 0,
						func(k int) float64 { return math.Abs(float64(w.at(k, n))) })
					for k := range K {
						want += q[k] * float64(w.at(k, n))
						tol += 4 * eps32 * math.Abs(q[k]*float64(w.at(k, n)))
					}
					if m == 1 { // below what can be scaled
						want, slack = 0, 1e-3
						if v != 0 {
							t.Fatalf("y[1][%d] = %v of denormal activations", n, v)
						}
					}
					if math.Abs(want) > math.MaxFloat32 {
						if !math.IsInf(float64(v), 0) && v == v {
							t.Fatalf("y[%d][%d] = %v, want infinity", m, n, v)
						}
						continue
					}
					near(t, v, want, tol+slack, "y[%d][%d]", m, n)
				}
			}
		}
	})
}

// Each version has an entry in the tables of products and tiles.
func TestQ8Products(t *testing.T) {
	for i := portable; i < isas; i++ {
		if q8Products[i] == "" || rowsOfTile[i] == 0 {
			t.Errorf("version %s has no entry", i)
		}
	}
	if len(q8Products) != int(isas) || len(rowsOfTile) != len(q8Products) {
		t.Errorf("there are %d versions, products of %d and tiles of %d", isas, len(q8Products), len(rowsOfTile))
	}
}

func float64s(x []float32) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}

// Only weights of products are held in blocks, no tables; sizes count the scales.
func TestQ8Size(t *testing.T) {
	if _, err := newWeight(&arena{}, 32, 4, q8Type, true); err == nil || !strings.Contains(err.Error(), "8-bit") {
		t.Error("a table was made of 8-bit blocks, in which single rows cannot be set")
	}
	if got, want := weightBytes(33, 33, q8Type, false), 2*2*1088; got != want {
		t.Errorf("33 x 33 take %d bytes, want %d", got, want)
	}
	if got := q8Type.bytesPerWeight(); got != 1.0625 {
		t.Errorf("a weight takes %v bytes", got)
	}
}

// A block of a Q8_0 file keeps its integers when it is quantised again, since the new scale is that of the file,
// rounded from float16 to bfloat16: by 2^-8 at most, which is less than half a step of the largest integer, 127.
// Weights are then off by a twentieth more than by the file's own rounding to 8 bits; a scale rounded down would make
// it a fifth.
func TestQ8KeepsIntegers(t *testing.T) {
	eachISA(t, func(t *testing.T, pools []*pool) {
		const K, N = 256, 96
		r := rand.New(rand.NewPCG(8, 2))
		var src []byte
		var exact, stored [K * N]float64
		var integers [K * N]int
		for n := range N {
			for k0 := 0; k0 < K; k0 += 32 {
				most := 0.0
				for k := k0; k < k0+32; k++ {
					exact[k*N+n] = r.NormFloat64() * 0.02
					most = max(most, math.Abs(exact[k*N+n]))
				}
				d := math.Round(most/127*0x1p24) / 0x1p24 // a float16, if it is subnormal
				if _, exp := math.Frexp(most / 127); exp > -13 {
					d = math.Round(math.Ldexp(most/127, 11-exp)) * math.Ldexp(1, exp-11)
				}
				for k := k0; k < k0+32; k++ {
					integers[k*N+n] = int(math.Round(exact[k*N+n] / (most / 127))) // as ggml's quantize_row_q8_0
					stored[k*N+n] = d * float64(integers[k*N+n])
				}
			}
		}
		for _, v := range stored {
			src = binary.LittleEndian.AppendUint32(src, math.Float32bits(float32(v)))
		}
		w := testWeight(t, K, N, q8Type, false)
		if bad, err := w.pack(pools[0], src, float32Type, false, 0, K); bad != 0 || err != nil {
			t.Fatal(bad, err)
		}
		var before, after float64
		for k := range K {
			for n := range N {
				i := k*N + n
				if _, q := w.block(k, n); q != integers[i] {
					t.Fatalf("W[%d][%d] is held as %d, the file has %d", k, n, q, integers[i])
				}
				before += (stored[i] - exact[i]) * (stored[i] - exact[i])
				after += (float64(w.at(k, n)) - exact[i]) * (float64(w.at(k, n)) - exact[i])
			}
		}
		ratio := math.Sqrt(after / before)
		t.Logf("error of the weights: %.2f %% more than the file's own", 100*(ratio-1))
		if ratio > 1.1 {
			t.Errorf("the error of the weights is %.3f of the file's own", ratio)
		}
	})
}
