package tables

import (
	"cmp"
	"fmt"
	"slices"
)

// RowKinds are the kinds of rows in the order of a table.
var RowKinds = []RowKind{RowWork, RowOther, RowIdle, RowResidual}

// TopOps joins all but the first n rows to one; it keeps all if n is 0, and a single row that
// would be joined.
func TopOps(rows []OpRow, n int) []OpRow {
	if n == 0 || n+1 >= len(rows) {
		return rows
	}
	rest := OpRow{Name: fmt.Sprintf("%d more", len(rows)-n)}
	for _, r := range rows[n:] {
		rest.SelfCPU, rest.SelfGPU, rest.Calls, rest.Kernels = rest.SelfCPU+r.SelfCPU, rest.SelfGPU+r.SelfGPU,
			rest.Calls+r.Calls, rest.Kernels+r.Kernels
	}
	// What lies in one another does not sum: the totals are those of the parts' own.
	rest.CPU, rest.GPU = rest.SelfCPU, rest.SelfGPU
	return append(slices.Clone(rows[:n]), rest)
}

// TopLaunches joins all but the first n rows to one, as [TopOps] does.
func TopLaunches(rows []LaunchRow, n int) []LaunchRow {
	if n == 0 || n+1 >= len(rows) {
		return rows
	}
	rest := LaunchRow{Name: fmt.Sprintf("%d more", len(rows)-n)}
	depth := 0.0
	for _, r := range rows[n:] {
		rest.Calls, rest.Kernels, rest.Starved = rest.Calls+r.Calls, rest.Kernels+r.Kernels, rest.Starved+r.Starved
		rest.API, rest.Delay, rest.Busy = rest.API+r.API, rest.Delay+r.Delay, rest.Busy+r.Busy
		rest.MaxDelay, rest.MaxDepth = max(rest.MaxDelay, r.MaxDelay), max(rest.MaxDepth, r.MaxDepth)
		depth += r.Depth * float64(r.Calls)
	}
	rest.Depth = depth / float64(max(1, rest.Calls))
	return append(slices.Clone(rows[:n]), rest)
}

// TopRows joins, of each kind of row, all but n to one; it keeps all if n is 0. It keeps
// those that took the most time, or the first if the rows are sorted. The sum of the times
// stays.
func TopRows(all []Row, n int, sorted bool) []Row {
	if n == 0 {
		return all
	}
	var rows []Row
	for _, kind := range RowKinds {
		var of []int
		for i := range all {
			if all[i].Kind == kind {
				of = append(of, i)
			}
		}
		if !sorted {
			slices.SortStableFunc(of, func(a, b int) int { return cmp.Compare(all[b].Exclusive, all[a].Exclusive) })
		}
		keep := of
		if len(of) > n+1 { // the place of "1 more" is the row's own
			keep = of[:n:n]
		}
		more := of[len(keep):]
		if !sorted {
			slices.Sort(keep)
		}
		for _, i := range keep {
			rows = append(rows, all[i])
		}
		if len(more) > 0 {
			rest := sum(all, more)
			rest.Phase, rest.Op, rest.Name = "", "", fmt.Sprintf("%d more", len(more))
			rows = append(rows, rest)
		}
	}
	return rows
}
