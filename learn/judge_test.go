package learn

import "testing"

// repeated adds n values near one, which differ a little in a pattern of their own.
func (d *Data) repeated(of, quantity string, x, value float64) {
	for i := range 10 {
		d.add(of, quantity, x, value*(1+0.001*float64((i*(3+len(*d)%5))%7-3)))
	}
}

// verdicts judges data that must give different verdicts.
func verdicts(t *testing.T, judge func(Data) Finding, cases map[string]struct {
	data Data
	want Verdict
}) {
	t.Helper()
	for name, c := range cases {
		if f := judge(c.data); f.Verdict != c.want || f.Text == "" {
			t.Errorf("%s: %q, want %q: %s", name, f.Verdict, c.want, f.Text)
		}
	}
}

type given = map[string]struct {
	data Data
	want Verdict
}
