package learn

import "testing"

func TestParallelOnCPU(t *testing.T) {
	for _, c := range []struct {
		all  float64
		want Verdict
	}{{40, Refuted}, {4, Refuted}, {2, Unknown}, {1, Shown}} {
		var d Data
		for range 8 {
			for name, factor := range map[string]float64{oneChain: 1, eightChains: c.all / 2, vectorsOf: c.all, vectorsOf + ", all threads": c.all} {
				d.add(name, "time_us", 1, 1000)
				d.add(name, "flops", 1, 1e6*factor)
			}
		}
		if f := judgeParallelOnCPU(d); f.Verdict != c.want {
			t.Errorf("a factor of %g: %s: %s", c.all, f.Verdict, f.Text)
		}
	}
}

func TestParallelOnGPU(t *testing.T) {
	for _, c := range []struct {
		warp float64
		want Verdict
	}{{1, Shown}, {3, Unknown}, {32, Refuted}} {
		var d Data
		for range 8 {
			for threads, time := range map[float64]float64{1: 100, 32: 100 * c.warp, 1024: 110 * c.warp} {
				d.add("GPU threads", "time_us", threads, time)
				d.add("GPU threads", "flops", threads, threads)
			}
		}
		if f := judgeParallelOnGPU(d); f.Verdict != c.want {
			t.Errorf("a warp takes %g times as long as a lane: %s: %s", c.warp, f.Verdict, f.Text)
		}
	}
}
