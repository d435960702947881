package learn

import "testing"

func TestParallelOnCPU(t *testing.T) {
	data := func(all float64) (d Data) {
		for name, factor := range map[string]float64{oneChain: 1, eightChains: all / 2, vectorsOf: all, vectorsOf + ", all threads": all} {
			d = d.same(8, name, "time_us", 1, 1000).same(8, name, "flops", 1, 1e6*factor)
		}
		return d
	}
	verdicts(t, judgeParallelOnCPU, given{"40": {data(40), Refuted}, "4": {data(4), Refuted}, "3.9": {data(3.9), Unknown}, "1.6": {data(1.6), Unknown}, "1": {data(1), Shown}})
}

func TestParallelOnGPU(t *testing.T) {
	data := func(warp float64) (d Data) { // how many times as long as a lane a warp takes
		for threads, time := range map[float64]float64{1: 100, 32: 100 * warp, 1024: 110 * warp} {
			d = d.same(8, "GPU threads", "time_us", threads, time).same(8, "GPU threads", "flops", threads, threads)
		}
		return d
	}
	verdicts(t, judgeParallelOnGPU, given{"1": {data(1), Shown}, "1.19": {data(1.19), Shown}, "1.3": {data(1.3), Unknown}, "16": {data(16), Unknown}, "32": {data(32), Refuted}})
}
