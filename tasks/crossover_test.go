package tasks

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"gpt2scope/internal/require"
	"gpt2scope/predict"
)

// line makes samples of vector.add whose times on the CPU are 0.01 us a value, and on the GPU
// alpha + beta a value, with noise of a few percent.
func line(alpha, beta, noise float64) []Sample { return lineOfSeed(alpha, beta, noise, 1) }

func lineOfSeed(alpha, beta, noise float64, seed uint64) []Sample {
	random := rand.New(rand.NewPCG(seed, 2))
	var out []Sample
	for n := 1 << 10; n <= 1<<20; n *= 2 {
		for repeat := range 7 {
			s := sampled()
			s.Task, s.Shape, s.DType, s.Variant, s.Cold, s.Repeat = "vector.add", fmt.Sprintf("n=%d", n), Float32, Tuned, false, repeat+1
			s.Device, s.Memory, s.Us = CPU, predict.Host, 0.01*float64(n)*(1+noise*random.NormFloat64())
			s.KernelUs, s.H2DUs, s.D2HUs = s.Us, 0, 0
			out = append(out, s)
			s.Device, s.Memory, s.Us = "cuda:0", predict.Pinned, (alpha+beta*float64(n))*(1+noise*random.NormFloat64())
			s.H2DUs, s.KernelUs, s.D2HUs = 0.5*s.Us, 0.2*s.Us, 0.2*s.Us
			out = append(out, s)
		}
	}
	return out
}

// The crossover is found where the lines cross, with an interval that holds it.
func TestCrossovers(t *testing.T) {
	const want = 100 / (0.01 - 0.002) // alpha / (difference of slopes)
	for _, noise := range []float64{0, 0.05} {
		got := Crossovers(line(100, 0.002, noise), 1)
		if len(got) != 1 || got[0].Faster != "both" || got[0].Size == nil {
			t.Fatalf("%+v", got)
		}
		c := got[0]
		if c.Line != "n=*" || c.Device != "cuda:0" || c.Memory != predict.Pinned || math.Abs(math.Log(*c.Size/want)) > 0.1 {
			t.Errorf("%+v: from %g on; want %g", c, *c.Size, float64(want))
		}
		if c.Exceptions > 0 && noise == 0 {
			t.Errorf("%d of %d sizes are on the wrong side of the line that all keep", c.Exceptions, c.Sizes)
		}
		if !(*c.Low <= *c.Size && *c.Size <= *c.High) || noise > 0 == (*c.Low == *c.High) || *c.High > 1.5**c.Low {
			t.Errorf("noise %g: from %g on, interval %g to %g", noise, *c.Size, *c.Low, *c.High)
		}
	}
	for _, c := range []struct {
		alpha, beta float64
		faster      string
	}{{1e6, 1, CPU}, {0.001, 0.0001, "gpu"}} {
		if got := Crossovers(line(c.alpha, c.beta, 0.05), 1); len(got) != 1 || got[0].Faster != c.faster || got[0].Size != nil {
			t.Errorf("%+v; want %s faster everywhere", got, c.faster)
		}
	}
	// Of several changes of the sign, the one counts that leaves the least wrong choices.
	if size, faster := crossing([]int{1, 2, 4, 8, 16}, []float64{1, -0.01, 1, -2, -3}); faster != "both" || size < 4 || size > 8 {
		t.Errorf("%g, %s", size, faster)
	}
}

func TestLineOf(t *testing.T) {
	for shape, want := range map[string]string{
		"n=1024": "n=* 1024", "m=64,n=64,k=64": "m=*,n=*,k=* 64", "m=4,n=1152,k=384": "m=*,n=1152,k=384 4",
		"t=16,b=2,l=6,c=384,v=257": "t=*,b=2,l=6,c=384,v=257 16", "past=128,b=4,l=6,c=384,v=257": "past=128,b=*,l=6,c=384,v=257 4", "t=8,n=16,l=1,c=384,v=257": "t=*,n=16,l=1,c=384,v=257 8",
	} {
		s := require.Value(ParseShape(shape))(t)
		if line, size := lineOf(s); fmt.Sprint(line, " ", size) != want {
			t.Errorf("%s: %s %d; want %s", shape, line, size, want)
		}
	}
}

// The tables of notebooks have medians in milliseconds.
func TestProfiles(t *testing.T) {
	samples := line(100, 0.002, 0)
	for i := range samples {
		if samples[i].Device != CPU {
			samples[i].Memory = predict.Pageable
		}
	}
	rows := Profiles[0].Table(samples, profileColumns, milliseconds)
	if len(rows) != 12 {
		t.Fatalf("%d rows", len(rows))
	}
	if fmt.Sprint(rows[0][:3]) != "[size cpu_time_ms gpu_time_ms]" || fmt.Sprint(rows[1]) != "[1024 0.01024 0.102048 0.051024 0.0204096 0.0204096  ]" {
		t.Errorf("%q\n%q", rows[0], rows[1])
	}
}

// A table without rows is not written, and one of earlier samples does not stay.
func TestProfilesHaveRows(t *testing.T) {
	dir, samples := t.TempDir(), line(100, 0.002, 0)
	for _, want := range []int{0, 2} {
		for i := range samples {
			samples[i].Task = Profiles[want].Task
		}
		must(t, Write(context.Background(), dir, samples))
		for i, p := range Profiles {
			if _, err := os.Stat(filepath.Join(dir, p.File)); (err == nil) != (i == want) {
				t.Errorf("after samples of %s: %s: %v", samples[0].Task, p.File, err)
			}
		}
	}
}

// The parts of a run and the rest are all of it.
func TestShares(t *testing.T) {
	charts := Charts(line(100, 0.002, 0), 1)
	if len(charts) != 1 || len(charts[0].GPUs) != 1 || len(charts[0].Crossovers) != 1 {
		t.Fatalf("%+v", charts)
	}
	sizes, shares := charts[0].Shares("cuda:0", predict.Pinned)
	if len(sizes) != 11 {
		t.Fatalf("sizes %v", sizes)
	}
	for i, s := range shares {
		if math.Abs(s[0]-50) > 1e-6 || math.Abs(s[1]-20) > 1e-6 || math.Abs(s[2]-20) > 1e-6 || math.Abs(s[3]-10) > 1e-6 {
			t.Errorf("%d: %+v", sizes[i], s)
		}
	}
}

func TestMerge(t *testing.T) {
	a := line(100, 0.002, 0)[:4]
	b := sampled()
	b.Time = b.Time.Add(-1)
	merged := Merge(append(append([]Sample{}, a...), append(a, b)...))
	if len(merged) != 5 || merged[0].Task != b.Task || !merged[0].Time.Equal(b.Time) {
		t.Errorf("%d samples, the first %+v", len(merged), merged[0])
	}
}
