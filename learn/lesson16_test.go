package learn

import "testing"

func utilisationData(idle, one, used float64) (d Data) {
	d.add("all", "sms", 0, 132)
	for of, percent := range map[string]float64{idleGPU: idle, oneBlock: one, blockPerSM: 100} {
		for range 10 {
			d.add(of, "utilisation_percent", 0, percent)
			d.add(of, "power_w", 0, 100)
		}
	}
	d.add(oneBlock, "sms_used", 0, used)
	d.add(blockPerSM, "sms_used", 0, 132)
	return d
}

func TestUtilisation(t *testing.T) {
	verdicts(t, judgeUtilisation, given{
		"one block, all of the time":    {utilisationData(0, 100, 1), Refuted},
		"a share of SMs":                {utilisationData(0, 1, 1), Shown},
		"another program":               {utilisationData(90, 100, 1), Unknown},
		"neither":                       {utilisationData(0, 30, 1), Unknown},
		"one block on each SM, a share": {utilisationData(0, 100, 132), Shown},
	})
}
