package learn

import "testing"

// thresholdData are times of straight lines, a + b n, of the CPU and of the GPU in each place.
func thresholdData(cpu, gpu [4][2]float64) (d Data) {
	for p := range place(4) {
		for n := 1024.0; n < 1<<22; n *= 2 {
			d.repeated(p.String(), "cpu_us", n, cpu[p][0]+cpu[p][1]*n)
			d.repeated(p.String(), "gpu_us", n, gpu[p][0]+gpu[p][1]*n)
		}
	}
	return d
}

func TestThreshold(t *testing.T) {
	host, device, queued, late := [2]float64{0, 5e-4}, [2]float64{20, 8e-4}, [2]float64{30, 2e-4}, [2]float64{530, 2e-4}
	resident, residentLate := [2]float64{8, 4e-6}, [2]float64{508, 4e-6}
	mixed := thresholdData([4][2]float64{host, device, host, {520, 8e-4}}, [4][2]float64{queued, resident, late, residentLate})
	alike := thresholdData([4][2]float64{host, host, host, host}, [4][2]float64{queued, queued, queued, queued})
	between := thresholdData([4][2]float64{host, host, host, host}, [4][2]float64{queued, queued, {400, 2e-4}, {400, 2e-4}})
	few := Data{}
	for _, p := range mixed {
		if p.X < 8000 {
			few = append(few, p)
		}
	}
	verdicts(t, judgeThreshold, given{"mixed places and queues": {mixed, Refuted}, "one line in all places": {alike, Shown}, "three sizes": {few, Unknown}, "a threshold loses 8 %": {between, Unknown}})
}
