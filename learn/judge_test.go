package learn

import (
	"slices"
	"testing"
)

// repeated adds n values near one, which differ a little in a pattern of their own.
func (d *Data) repeated(of, quantity string, x, value float64) {
	for i := range 10 {
		d.add(of, quantity, x, value*(1+0.001*float64((i*(3+len(*d)%5))%7-3)))
	}
}

// same adds n values that are all the same, and returns the data.
func (d Data) same(n int, of, quantity string, x, value float64) Data {
	for range n {
		d.add(of, quantity, x, value)
	}
	return d
}

type given = map[string]struct {
	data Data
	want Verdict
}

// verdicts judges data that must show, refute, and leave undecided.
func verdicts(t *testing.T, judge func(Data) Finding, cases given) {
	t.Helper()
	found := []Verdict{Unknown} // no data: see TestNoData
	for name, c := range cases {
		f := judge(c.data)
		if f.Verdict != c.want || f.Text == "" {
			t.Errorf("%s: %q, expected %q: %s", name, f.Verdict, c.want, f.Text)
		}
		found = append(found, c.want)
	}
	for _, v := range []Verdict{Shown, Refuted} {
		if !slices.Contains(found, v) {
			t.Errorf("no data of this test are %s", v)
		}
	}
}
