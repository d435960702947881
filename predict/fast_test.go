package predict

import (
	"math"
	"math/rand/v2"
	"testing"
)

// What makes predictions brief changes none of them.
func TestBriefWays(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 10000 {
		x, e := math.Exp(40*random.Float64()-20), float64(random.IntN(9))/8
		if a, b := power(x, e), math.Pow(x, e); a != b {
			t.Fatalf("%g to the power of %g is %g; math.Pow has %g", x, e, a, b)
		}
	}
	for _, x := range []float64{1e-300, 1e-101, 1, 1e101, 1e300} {
		if a, b := power(x, 0.75), math.Pow(x, 0.75); a != b {
			t.Errorf("%g to the power of 0.75 is %g; math.Pow has %g", x, a, b)
		}
	}
	for _, x := range []float64{math.NaN(), math.Inf(-1), -3, 0, 0.5, 1, 1.5, 2, 1023, 1024, 1e30} {
		want := 0.0
		if x > 1 {
			want = math.Log(x)
		}
		if a := above1(x); a != want {
			t.Errorf("the logarithm of what is above 1 of %g is %g; expected %g", x, a, want)
		}
	}
	l, here := local{}, [features]float64{}
	for k := range here {
		here[k] = 6*random.Float64() - 3
	}
	want := 0.0
	for range maxPoints {
		p := point{}
		for k := range p.at {
			p.at[k] = 6*random.Float64() - 3
		}
		p.set(random.Float64() - 0.5)
		l[Host], want = append(l[Host], p), want+p.weight*near(&p.at, &here)
	}
	if got := l.at(Host, &here); !(math.Abs(got-want) < 1e-12) {
		t.Errorf("the sum over points is %g; expected %g", got, want)
	}
}

// The index tells tasks apart that stand in one list.
func TestIndex(t *testing.T) {
	names := []op{{"gpt2.decode", "float32"}, {"gpt2.decodf", "float32"}, {"1pt2.decode", "float32"}, {"gpt2.decode", ""}, {"", ""}, {"a", "b"}}
	var x index
	tasks := make([]Task, len(names))
	for i, n := range names {
		tasks[i] = Task{Task: n.task, DType: n.dtype}
		x.add(n.task, n.dtype, i)
	}
	for i, n := range names {
		if at := x.of(tasks, n.task, n.dtype); at != i {
			t.Errorf("%q is at %d; expected %d", n, at, i)
		}
	}
	for _, n := range []op{{"gpt2.decode", "float3"}, {"2pt2.decode", "float32"}, {"b", ""}} {
		if at := x.of(tasks, n.task, n.dtype); at != -1 {
			t.Errorf("%q is at %d; it is not there", n, at)
		}
	}
}
