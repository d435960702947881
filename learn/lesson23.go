package learn

import (
	"fmt"
	"strings"

	"gpt2scope/traces/tables"
)

var lesson23 = Lesson{
	Number: 23,
	Claim:  "the CPU total of an operator is the time of its own work",
	CPU:    &Experiment{Of: "From a recording of PyTorch's profiler in the program, sample:kineto", Run: totalsOf, Judge: judgeTotals},
	Why: `PyTorch's operators call each other. aten::linear picks a product and calls aten::addmm; aten::square calls
aten::pow. The total of an operator is the time from its start to its end, with all that it calls; the self time is the
total without them. So a total says how long something took that you called, and self says where it went. Sum a column
of totals, and nested work is counted once for each operator around it; self times count it once. Both are times of
the host: while it launches kernels, not while they run. The first call of an operator also loads kernels and chooses
algorithms, which stands in its total: in sample:square, on a GPU, the first square takes 35.0 ms, and the second 28 us.
The same holds for Self CUDA and CUDA total.`,
	GoOn: "infer trace show sample:square --by op",
}

// selfMeansOwn is from which share of its total on the self time of an operator is all that it does.
const selfMeansOwn = 0.9

func totalsOf(l *lab) {
	t := must(tables.Summarize(l.sample("kineto"), tables.ByOp, -1))
	for _, op := range t.Ops {
		l.add(op.Name, "self_us", 0, float64(op.SelfCPU)/1e3)
		l.add(op.Name, "total_us", 0, float64(op.CPU)/1e3)
	}
}

func judgeTotals(d Data) Finding {
	self, all, least, lowest := 0.0, 0.0, "", 1.0
	for _, of := range d.cases("self_us") {
		s, t := total(d.values(of, "self_us")), total(d.values(of, "total_us"))
		self, all = self+s, all+t
		if t > 0 && s/t < lowest && strings.HasPrefix(of, "aten::") {
			least, lowest = of, s/t
		}
	}
	if !(self > 0) {
		return undecided("There are no operators.")
	}
	ratio := exact("totals of all operators over their self times", "x", all/self)
	f := Finding{Figures: []Figure{exact("self times of all operators", "us", self), exact("totals of all operators", "us", all), ratio}}
	for _, of := range []string{"aten::linear", "aten::addmm", least} {
		if s, t := d.values(of, "self_us"), d.values(of, "total_us"); len(t) > 0 {
			f.Figures = append(f.Figures, exact(of+": self", "us", total(s)), exact(of+": total", "us", total(t)))
		}
	}
	f.Text = fmt.Sprintf("The totals sum to %s the self times: work is counted again for each operator around it.", ratio.Short())
	return f.decide(rule{Refuted, lowest < 0.5, fmt.Sprintf("Of the total of %s, %s %% is its own.", least, number(100*lowest))},
		rule{Shown, lowest >= selfMeansOwn, ""})
}
