package predict

import (
	"math"
	"math/rand/v2"
	"testing"
)

// What makes predictions brief changes none of them.
func TestBriefWays(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, x := range []float64{math.NaN(), math.Inf(-1), -3, 0, 0.5, 1, 1.5, 2, 1023, 1024, 1e30} {
		want := 0.0
		if x > 1 {
			want = math.Log(x)
		}
		if a := above1(x); a != want {
			t.Errorf("the logarithm of what is above 1 of %g is %g; expected %g", x, a, want)
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
