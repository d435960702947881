package predict

import (
	"math"
	"math/rand/v2"
	"testing"
)

// What makes predictions brief changes none of them.
func TestBriefWays(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for x := 1e-300; x < 1e300; x *= 1 + random.Float64() {
		if a, b := log(x), math.Log(x); !(math.Abs(a-b) <= 1e-14+1e-15*math.Abs(b)) {
			t.Fatalf("the logarithm of %g is %g; expected %g", x, a, b)
		}
	}
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -3, 0, 5e-324, 1e-310, math.MaxFloat64, 1, math.Nextafter(1, 0), math.Nextafter(1, 2), math.Nextafter(2, 0), 2} {
		a, b := log(x), math.Log(x)
		if a != b && !(math.Abs(a-b) <= 1e-14+1e-15*math.Abs(b)) && !(math.IsNaN(a) && math.IsNaN(b)) {
			t.Errorf("the logarithm of %g is %g; expected %g", x, a, b)
		}
		if b = max(0, b); math.IsNaN(b) {
			b = 0
		}
		if a := above1(x); a != b && !(math.Abs(a-b) <= 1e-14+1e-15*b) {
			t.Errorf("the logarithm of what is above 1 of %g is %g; expected %g", x, a, b)
		}
	}
	for n := range maxPoints + 1 {
		l, here := local{}, [features]float64{}
		for k := range here {
			here[k] = 6*random.Float64() - 3
		}
		c, want := &l[Host], 0.0
		c.floor, c.bytes = Range{-3, 3}, Range{-3, 3}
		for range n {
			p := point{weight: random.Float64() - 0.5}
			for k := range p.at {
				p.at[k] = 6*random.Float64() - 3
			}
			c.points, want = append(c.points, p), want+p.weight*near(&p.at, &here)
		}
		c.blocks = packed(c.points)
		if got := l.at(Host, &here); !(math.Abs(got-want) < 1e-12) {
			t.Errorf("the sum over %d points is %g; expected %g", n, got, want)
		}
		p := c.origin(&here)
		if got := p.sumPlain(c.blocks); !(math.Abs(got-want) < 1e-12) {
			t.Errorf("the sum over %d points without vectors is %g; expected %g", n, got, want)
		}
		// Beyond what was measured the sum stays as it is at the end.
		far, end := here, here
		far[ofFloor], far[ofBytes] = 7, -9
		end[ofFloor], end[ofBytes] = 3, -3
		if a, b := l.at(Host, &far), l.at(Host, &end); a != b {
			t.Errorf("the sum beyond the range is %g, at its end %g", a, b)
		}
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
