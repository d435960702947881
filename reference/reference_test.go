package reference

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The functions are compared with values that were computed by hand or published, and with identities that hold for any
// input.

func near(t *testing.T, name string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance) {
		t.Errorf("%s is %.17g, want %.17g", name, got, want)
	}
}

func nearAll(t *testing.T, name string, got, want []float64, tolerance float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s has %d elements, want %d", name, len(got), len(want))
	}
	for i := range want {
		if !(math.Abs(got[i]-want[i]) <= tolerance) {
			t.Errorf("%s: element %d is %.17g, want %.17g", name, i, got[i], want[i])
		}
	}
}

func normals(r *rand.Rand, n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = r.NormFloat64()
	}
	return x
}

func TestGELU(t *testing.T) {
	// TensorFlow's documentation of tf.nn.gelu, which sums in float32: right to 5e-7.
	for i, x := range []float64{-3, -1, 0, 1, 3} {
		near(t, "GELUErf", GELUErf(x), []float64{-0.00404951, -0.15865529, 0, 0.8413447, 2.9959507}[i], 5e-7)
		near(t, "GELUTanh", GELUTanh(x), []float64{-0.00363752, -0.15880796, 0, 0.841192, 2.9963627}[i], 5e-7)
	}
	// x times the normal distribution function, from tables of it.
	near(t, "GELUErf(1)", GELUErf(1), 0.8413447460685429, 1e-15)
	near(t, "GELUErf(2)", GELUErf(2), 2*0.9772498680518208, 1e-15)
	near(t, "GELUErf(-6) / 9.865876450376981e-10", GELUErf(-6)/(-6*9.865876450376981e-10), 1, 1e-13)

	farthest := 0.0
	for x := -12.0; x <= 12; x += 0.01 {
		u := math.Sqrt(2/math.Pi) * (x + 0.044715*math.Pow(x, 3))
		near(t, "GELUTanh, as its tanh", GELUTanh(x), x/2*(1+math.Tanh(u)), 1e-14)
		near(t, "GELUErf, as its erf", GELUErf(x), x/2*(1+math.Erf(x/math.Sqrt2)), 1e-14)
		near(t, "GELUTanh(x) - GELUTanh(-x) - x", GELUTanh(x)-GELUTanh(-x)-x, 0, 1e-14)
		near(t, "GELUErf(x) - GELUErf(-x) - x", GELUErf(x)-GELUErf(-x)-x, 0, 1e-14)
		farthest = max(farthest, math.Abs(GELUTanh(x)-GELUErf(x)))
	}
	if farthest < 4e-4 || farthest > 5e-4 { // that of the approximation
		t.Errorf("the two GELUs differ by at most %g, want 4.7e-4", farthest)
	}
	for _, f := range []func(float64) float64{GELUTanh, GELUErf, ReLU} {
		if y := f(math.NaN()); y == y {
			t.Errorf("NaN becomes %g", y)
		}
		if y := f(1e30); y != 1e30 {
			t.Errorf("1e30 becomes %g", y)
		}
		if y := f(-1e30); y != 0 {
			t.Errorf("-1e30 becomes %g", y)
		}
	}
	if ReLU(2.5) != 2.5 || ReLU(-2.5) != 0 {
		t.Errorf("ReLU of 2.5 and -2.5 is %g and %g", ReLU(2.5), ReLU(-2.5))
	}
}

func TestLayerNorm(t *testing.T) {
	// Mean 2.5, variance 1.25 (1.67 where it divides by C-1), deviation 1.118.
	nearAll(t, "LayerNorm", LayerNorm([]float64{1, 2, 3, 4}, []float64{1, 2, 1, -1}, []float64{0, 0, 10, 0}, 0),
		[]float64{-3 / math.Sqrt(5), -2 / math.Sqrt(5), 10 + 1/math.Sqrt(5), -3 / math.Sqrt(5)}, 1e-15)
	// eps is added to the variance, 1, before the root.
	nearAll(t, "LayerNorm with eps 3", LayerNorm([]float32{1, 3}, []float32{1, 1}, []float32{0, 0}, 3),
		[]float64{-0.5, 0.5}, 1e-15)
	nearAll(t, "LayerNorm of equal values", LayerNorm([]float64{7, 7, 7}, []float64{5, 5, 5}, []float64{1, 2, 3}, 1e-5),
		[]float64{1, 2, 3}, 1e-12)

	r := rand.New(rand.NewPCG(1, 1))
	const C = 100
	x, gain, bias := normals(r, C), normals(r, C), normals(r, C)
	ones, zeros, moved := make([]float64, C), make([]float64, C), make([]float64, C)
	for i := range x {
		ones[i], moved[i] = 1, -30*x[i]+1000
	}
	y := LayerNorm(x, ones, zeros, 0)
	mean, square := 0.0, 0.0
	for _, v := range y {
		mean, square = mean+v/C, square+v*v/C
	}
	near(t, "the mean", mean, 0, 1e-14)
	near(t, "the variance", square, 1, 1e-14)
	for i, v := range LayerNorm(moved, ones, zeros, 0) {
		near(t, "a row scaled by -30 and shifted", v, -y[i], 1e-12)
	}
	for i, v := range LayerNorm(x, gain, bias, 0) {
		near(t, "gain and bias", v, y[i]*gain[i]+bias[i], 1e-14)
	}
}

func TestLinear(t *testing.T) {
	x, bias := []float64{1, 2}, []float64{10, 20, 30}
	w := []float64{1, 2, 3, 4, 5, 6} // (2, 3)
	nearAll(t, "Linear", Linear(x, w, bias), []float64{19, 32, 45}, 0)
	nearAll(t, "Linear without bias", Linear(x, w, nil), []float64{9, 12, 15}, 0)
	nearAll(t, "LinearTransposed", LinearTransposed(x, w, bias), []float64{15, 31, 47}, 0)
	nearAll(t, "LinearTransposed without bias", LinearTransposed([]float32{1, 2}, []float32{1, 2, 3, 4, 5, 6}, nil),
		[]float64{5, 11, 17}, 0)
	// float32 inputs are widened before they are multiplied.
	near(t, "Dot", Dot([]float32{1e30, 1, -1e30}, []float64{1e30, 3, 1e30}), 0, 0)
	near(t, "Dot of 1+2^-20", Dot([]float32{1 + 0x1p-20}, []float32{1 + 0x1p-20}), 1+0x1p-19+0x1p-40, 0)
}

func TestEmbedAndAdd(t *testing.T) {
	wte, wpe := []float32{0, 1, 10, 11, 20, 21}, []float32{100, 200, 300, 400} // (3, 2), (2, 2)
	nearAll(t, "Embed of token 2 at position 1", Embed(wte, wpe, 2, 1, 2), []float64{320, 421}, 0)
	nearAll(t, "Embed of token 1 at position 0", Embed(wte, wpe, 1, 0, 2), []float64{110, 211}, 0)
	nearAll(t, "Add", Add([]float32{1, 2}, []float32{0x1p-30, -5}), []float64{1 + 0x1p-30, -3}, 0)
}

func TestSoftmax(t *testing.T) {
	nearAll(t, "Softmax", Softmax([]float64{0, math.Log(2), math.Log(5)}), []float64{0.125, 0.25, 0.625}, 1e-15)
	nearAll(t, "Softmax of masked values", Softmax([]float64{math.Inf(-1), 3, 3, math.Inf(-1)}),
		[]float64{0, 0.5, 0.5, 0}, 0)
	nearAll(t, "Softmax of one", Softmax([]float32{-7}), []float64{1}, 0)
	r := rand.New(rand.NewPCG(2, 1))
	x := normals(r, 50)
	p, sum := Softmax(x), 0.0
	for i := range p {
		sum += p[i]
		near(t, "a ratio's logarithm", math.Log(p[i]/p[0]), x[i]-x[0], 1e-13)
	}
	near(t, "the sum", sum, 1, 1e-14)
	for _, shift := range []float64{-3, 1000, -1000} { // exp(1000) overflows
		moved := make([]float64, len(x))
		for i := range x {
			moved[i] = x[i] + shift
		}
		nearAll(t, "Softmax shifted", Softmax(moved), p, 1e-13)
	}
	for i, v := range Softmax([]float64{0, math.NaN(), 1}) {
		if v == v {
			t.Errorf("beside NaN, element %d is %g", i, v)
		}
	}
}

func TestAttention(t *testing.T) {
	// Scores 0 and ln 3: weights 1/4 and 3/4. The first query sees the first key alone.
	k, v := [][]float64{{0, 0}, {2, 0}}, [][]float64{{4, 8}, {8, 16}}
	q := [][]float64{{9, 9}, {math.Log(3), 5}}
	y := Attention(q, k, v, 0.5)
	nearAll(t, "the first query", y[0], []float64{4, 8}, 0)
	nearAll(t, "the second query", y[1], []float64{7, 14}, 1e-14)
	nearAll(t, "the second query alone", Attention(q[1:], k, v, 0.5)[0], []float64{7, 14}, 1e-14)
	if n := len(Attention(nil, k, v, 1)); n != 0 {
		t.Errorf("no queries give %d rows", n)
	}

	r := rand.New(rand.NewPCG(3, 1))
	const S, HS = 12, 5
	q, k, v = Rows(normals(r, S*HS), S, HS, HS), Rows(normals(r, S*HS), S, HS, HS), Rows(normals(r, S*HS), S, HS, HS)
	all := Attention(q, k, v, 0.4)
	for i := range S {
		// With a past: the last queries over all keys so far.
		nearAll(t, "a query with a past", Attention(q[i:i+1], k[:i+1], v[:i+1], 0.4)[0], all[i], 1e-14)
		for n := range S - i {
			nearAll(t, "one of several queries with a past", Attention(q[i:i+n+1], k[:i+n+1], v[:i+n+1], 0.4)[n], all[i+n],
				1e-14)
		}
		// The mask: what lies after a query is not read, and what lies before it is.
		hidden := func(rows [][]float64) [][]float64 {
			nan := []float64{math.NaN(), math.NaN(), math.NaN(), math.NaN(), math.NaN()}
			out := append([][]float64(nil), rows...)
			for j := i; j < S; j++ {
				out[j] = nan
			}
			return out
		}
		masked := Attention(q, hidden(k), hidden(v), 0.4)
		for j := range S {
			if j < i {
				nearAll(t, "a query before NaN keys", masked[j], all[j], 0)
			} else if masked[j][0] == masked[j][0] {
				t.Errorf("query %d does not read the NaN key %d", j, i)
			}
		}
	}
	// The order of the keys that a query sees does not matter.
	k[2], k[7], v[2], v[7] = k[7], k[2], v[7], v[2]
	nearAll(t, "the last query, with keys exchanged", Attention(q, k, v, 0.4)[S-1], all[S-1], 1e-14)
	// With scale 0 every visible value weighs the same.
	for i, y := range Attention(q, k, v, 0) {
		mean := 0.0
		for j := range i + 1 {
			mean += v[j][1] / float64(i+1)
		}
		near(t, "the mean value", y[1], mean, 1e-14)
	}
}

func TestRows(t *testing.T) {
	x := []float64{0, 1, 2, 3, 4, 5, 6, 7}
	rows := Rows(x[1:], 2, 4, 2)
	nearAll(t, "row 0", rows[0], []float64{1, 2}, 0)
	nearAll(t, "row 1", rows[1], []float64{5, 6}, 0)
}
