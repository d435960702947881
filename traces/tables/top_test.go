package tables

import "testing"

// Rows that are joined keep the sums of a table; a single one stays itself.
func TestTop(t *testing.T) {
	ops := []OpRow{{Name: "a", SelfCPU: 5, CPU: 9, Calls: 1}, {Name: "b", SelfCPU: 3, CPU: 4, SelfGPU: 2, GPU: 2, Calls: 2, Kernels: 1}, {Name: "c", SelfCPU: 1, CPU: 1, Calls: 3, Kernels: 4}}
	for _, n := range []int{0, 2, 3} {
		if got := TopOps(ops, n); len(got) != 3 {
			t.Errorf("the first %d of 3 are %+v", n, got)
		}
	}
	if got := TopOps(ops, 1); len(got) != 2 || got[0] != ops[0] || got[1] != (OpRow{Name: "2 more", SelfCPU: 4, CPU: 4, SelfGPU: 2, GPU: 2, Calls: 5, Kernels: 5}) {
		t.Errorf("%+v", got)
	}
	launches := []LaunchRow{{Name: "a", Calls: 1}, {Name: "b", Calls: 1, API: 7, MaxDepth: 3, Depth: 1, Starved: 1}, {Name: "c", Calls: 3, API: 2, MaxDepth: 2, Depth: 5}}
	if got := TopLaunches(launches, 1); len(got) != 2 || got[1].Calls != 4 || got[1].API != 9 || got[1].MaxDepth != 3 || got[1].Depth != 4 || got[1].Starved != 1 {
		t.Errorf("%+v", got)
	}
	for _, sorted := range []bool{false, true} {
		table := &Table{Rows: []Row{{Name: "a", Kind: RowWork, Exclusive: 1, Floor: 1}, {Name: "b", Kind: RowWork, Exclusive: 5, Floor: 2}, {Name: "c", Kind: RowWork, Exclusive: 3}, {Name: "idle", Kind: RowIdle, Exclusive: 2}}}
		table.Rows = TopRows(table.Rows, 1, sorted)
		first := map[bool]string{false: "b", true: "a"}[sorted]
		if len(table.Rows) != 3 || table.Rows[0].Name != first || table.Rows[1].Name != "2 more" || table.Rows[1].Floor != 0 || table.Rows[2].Name != "idle" {
			t.Errorf("sorted %t: %+v", sorted, table.Rows)
		}
		if sum := table.Rows[0].Exclusive + table.Rows[1].Exclusive + table.Rows[2].Exclusive; sum != 11 {
			t.Errorf("sorted %t: the rows sum to %d", sorted, sum)
		}
	}
}
