package learn

import (
	"strings"
	"testing"
)

// blocksData start units in an order, and add numbers up with results.
func blocksData(outcome string, turn func(launch, k int) int, fixed, loose func(i int) float64) (d Data) {
	if outcome != "" {
		d.say(returns, "outcome", outcome)
	}
	for launch := range blockLaunches {
		for k := range 100 {
			d.add(launchCase(launch), "turn", float64(k), float64(turn(launch, k)))
		}
	}
	for i := range 20 {
		for of, bits := range map[string]func(int) float64{inParts: fixed, asItCame: loose} {
			d.add(of, "sum_error", 0, 0.01)
			d.add(of, "sum_bits", 0, bits(i))
			d.add(of, "time_us", 0, 10+0.01*float64(i%5))
		}
	}
	return d
}

func TestBlocks(t *testing.T) {
	ordered := func(_, k int) int { return k }
	any := func(launch, k int) int { return (k*7 + launch) % 100 }
	once := func(launch, k int) int { // out of order in one launch only
		if launch == 1 {
			return any(launch, k)
		}
		return k
	}
	same, differ := func(int) float64 { return 42 }, func(i int) float64 { return float64(i % 4) }
	const log = "blocks.cu(11): error: must have void return type\n  int order()\n"
	if f := judgeBlocks(blocksData(log, any, same, differ)); !strings.Contains(f.Text, "refuses a kernel that returns a value: must have void return type.") {
		t.Error(f.Text)
	}
	verdicts(t, judgeBlocks, given{
		"as GPUs do":                         {blocksData("error: must have void return type", any, same, differ), Shown},
		"goroutines":                         {blocksData("", any, same, same), Shown},
		"out of order in one launch":         {blocksData("", once, same, differ), Shown},
		"always in order":                    {blocksData("error: must have void return type", ordered, same, differ), Refuted},
		"kernels that return":                {blocksData("it compiles", any, same, differ), Refuted},
		"no order was measured":              {nil, Unknown},
		"shared memory that gives no result": {blocksData("error: must have void return type", any, differ, differ), Refuted},
	})
}
