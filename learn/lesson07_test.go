package learn

import "testing"

func TestWidth(t *testing.T) {
	for _, c := range []struct {
		few, many float64
		want      Verdict
	}{{8, 2048, Refuted}, {4, 4, Shown}, {0, 0, Unknown}, {8, 8, Unknown}} {
		var d Data
		for range 8 {
			for _, of := range []string{"width 1", "width 4", fourBlocks} {
				for n, blocks := range map[float64]float64{4096: c.few, 1 << 20: c.many} {
					d.add(of, "time_us", n, 10)
					d.add(of, "bytes", n, 8*n)
					d.add(of, "blocks", n, blocks)
				}
			}
		}
		if f := judgeWidth(d); f.Verdict != c.want {
			t.Errorf("%g and %g blocks: %s: %s", c.few, c.many, f.Verdict, f.Text)
		}
	}
}
