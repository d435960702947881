package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// The tables of docs/scheduling.md are those of the stored samples and of the policies as they are.
func TestSchedulingDocs(t *testing.T) {
	type policy struct {
		Policy    string    `json:"policy"`
		Makespan  float64   `json:"makespan_us"`
		OverBound float64   `json:"over_bound"`
		Busy      []float64 `json:"busy"`
		Mean      float64   `json:"alone_geometric_mean"`
		P99       float64   `json:"alone_p99"`
		Worst     float64   `json:"alone_worst"`
	}
	simulated := func(args ...string) (all []policy) {
		var result struct {
			Policies []policy `json:"policies"`
		}
		if err := json.Unmarshal([]byte(mustInfer(t, append([]string{"tasks", "simulate", "--json"}, args...)...).stdout), &result); err != nil {
			t.Fatal(err)
		}
		for _, p := range result.Policies {
			if len(p.Busy) != 2 {
				t.Fatalf("%+v", p)
			}
			p.Policy = strings.NewReplacer("threshold of", "best threshold in hindsight, of", "cuda:0", "the GPU", "cpu", "the CPU").Replace(p.Policy)
			all = append(all, p)
		}
		return all
	}
	sizes, task := simulated(), simulated("--held-out", "task")
	stream := "| policy | makespan ms | over bound | CPU busy % | GPU busy % |\n|---|---|---|---|---|\n"
	slices.SortStableFunc(sizes, func(a, b policy) int { return cmp.Compare(a.Makespan, b.Makespan) })
	for _, p := range sizes {
		stream += fmt.Sprintf("| %s | %.0f | %.2f | %.0f | %.0f |\n", p.Policy, p.Makespan/1e3, p.OverBound, 100*p.Busy[0], 100*p.Busy[1])
	}
	alone := "| policy | sizes held out: geometric mean | p99 | worst | a task held out: geometric mean | worst |\n|---|---|---|---|---|---|\n"
	slices.SortStableFunc(sizes, func(a, b policy) int { return cmp.Compare(a.Mean, b.Mean) })
	for _, p := range sizes {
		i := slices.IndexFunc(task, func(q policy) bool { return q.Policy == p.Policy })
		if p.Policy != "oracle" && i >= 0 {
			alone += fmt.Sprintf("| %s | %.3f | %.3g | %.3g | %.3f | %.3g |\n", p.Policy, p.Mean, p.P99, p.Worst, task[i].Mean, task[i].Worst)
		}
	}
	const path = "../../docs/scheduling.md"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	for name, table := range map[string]string{"stream": stream, "alone": alone} {
		begin, end := "<!-- "+name+" -->\n", "<!-- /"+name+" -->\n"
		before, rest, ok := strings.Cut(text, begin)
		block, after, also := strings.Cut(rest, end)
		switch {
		case !ok || !also:
			t.Fatalf("%s has no lines %s and %s", path, begin, end)
		case *update:
			text = before + begin + table + end + after
		case block != table:
			t.Errorf("a table of %s is not that of the samples: 'go test ./cmd/infer -run TestSchedulingDocs -update' writes it:\n%s", path, table)
		}
	}
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}
