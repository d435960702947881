package learn

import "testing"

func TestRangesOfSample(t *testing.T) {
	d := rangesOf(sample(t, "gpt2-L12-eager-cupti"))
	if n := len(d.cases("host_us")); n != 12 {
		t.Errorf("stages %q, want 12", d.cases("host_us"))
	}
	f := judgeRanges(d)
	if f.Verdict != Refuted || f.Figures[2].Value < 10 || f.Figures[6].Value > 1 {
		t.Errorf("%s: %s", f.Verdict, f.Text)
	}
	if a, b := f.Figures[0], f.Figures[4]; a.Name != "wte+wpe: ranges on the host (nvtx_sum)" || a.Short() != "393 us" || b.Name != "ln_f+lm_head: ranges on the host (nvtx_sum)" || b.Short() != "83.5 us" {
		t.Errorf("%+v", f.Figures)
	}
}

func TestRanges(t *testing.T) {
	data := func(first, later float64) (d Data) {
		for _, stage := range []string{"h.N.ln_1", "sample"} {
			d.add(stage, "host_us", 0, first)
			d.add(stage, "device_us", 0, 10)
			for pass := range 9 {
				d.add(stage, "host_us", float64(pass+1), later)
				d.add(stage, "device_us", float64(pass+1), 10)
			}
		}
		return d
	}
	verdicts(t, judgeRanges, given{
		"a first call that loads":         {data(5000, 10), Refuted},
		"ranges shorter than kernels":     {data(3, 3), Refuted},
		"ranges as long as their kernels": {data(10, 10), Shown},
		"ranges a little longer":          {data(13, 13), Unknown},
	})
}
