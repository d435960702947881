package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"gpt2scope/cmd/infer/tasks"
	"gpt2scope/predict/grade"
)

// The tables of docs/cost-model.md, and what docs/tasks.md says that the model reaches, are those of the stored samples and of the model as it is. All
// tables take about half an hour to make; the test makes one of them, and -update all.
func TestTasksDocs(t *testing.T) {
	const path, begin, end = "../../docs/cost-model.md", "<!-- check -->\n", "<!-- /check -->\n"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), begin)
	block, after, also := strings.Cut(rest, end)
	if !ok || !also {
		t.Fatalf("%s has no lines %s and %s", path, begin, end)
	}
	rows, err := tasks.ReadRows(&bytes.Buffer{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	tables := func(splits ...string) string {
		result, err := grade.Check(t.Context(), rows, grade.Families(), splits...)
		if err != nil {
			t.Fatal(err)
		}
		result.Decisions = nil // times of this machine now
		var b bytes.Buffer
		tasks.WriteCheck(&b, result)
		return b.String()
	}
	if *update {
		block = "```\n" + tables() + "```\n"
		if err := os.WriteFile(path, []byte(before+begin+block+end+after), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if want := strings.TrimRight(tables(grade.Between), "\n"); !strings.Contains(block, strings.SplitN(want, "\n\n", 2)[0]) || !strings.Contains(block, strings.SplitN(want, "\n\n", 2)[1]) {
		t.Errorf("the tables of %s are not those of the samples: 'go test ./cmd/infer -run TestTasksDocs -update' writes them. One is\n%s", path, want)
	}

	// The goals are of the machine with the H200 alone. A task held out is graded with -update, since it takes a while.
	const goals = "../../docs/tasks.md"
	if page, err = os.ReadFile(goals); err != nil {
		t.Fatal(err)
	}
	of, err := tasks.ReadRows(&bytes.Buffer{}, []string{"../../tasks/samples/h200.csv.gz"})
	if err != nil {
		t.Fatal(err)
	}
	splits := []string{grade.Between}
	if *update {
		splits = append(splits, grade.TaskOut)
	}
	families := grade.Families()
	result, err := grade.Check(t.Context(), of, families[len(families)-1:], splits...)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range result.Scores {
		rows := []string{
			fmt.Sprintf("| sizes between: time over the oracle, geometric mean | 1.05 | %.3f |", s.Geometric.Value),
			fmt.Sprintf("| sizes between: error, median and P90 | 8, 25 %% | %.1f, %.1f %% |", 100*s.Median.Value, 100*s.P90.Value),
			fmt.Sprintf("| sizes between: worst choice | 1.5 | %.2f |", *s.Worst),
		}
		if s.Split == grade.TaskOut {
			rows = []string{
				fmt.Sprintf("| a task held out: the same | 1.14 | %.3f |", s.Geometric.Value),
				fmt.Sprintf("| a task held out: median error | 30 %% | %.1f %% |", 100*s.Median.Value),
			}
		}
		for _, row := range rows {
			if !strings.Contains(string(page), row) {
				t.Errorf("%s lacks the row\n%s", goals, row)
			}
		}
	}
}
