package learn

import "testing"

func TestWidth(t *testing.T) {
	data := func(few, many float64) (d Data) { // blocks
		for _, of := range []string{"width 1", "width 4", fourBlocks} {
			for n, blocks := range map[float64]float64{4096: few, 1 << 20: many} {
				d = d.same(8, of, "time_us", n, 10).same(8, of, "bytes", n, 8*n).same(8, of, "blocks", n, blocks)
			}
		}
		return d
	}
	verdicts(t, judgeWidth, given{"more for more numbers": {data(8, 2048), Refuted}, "always 4": {data(4, 4), Shown}, "none": {data(0, 0), Unknown}, "always 8": {data(8, 8), Unknown}})
}
