package tables

import (
	"cmp"
	"fmt"
	"slices"
)

// RowKinds are the kinds of rows in the order of a table.
var RowKinds = []RowKind{RowWork, RowOther, RowIdle, RowResidual}

// TopRows joins, of each kind of row, all but n to one behind them; it keeps all if n is 0. It keeps those that took the
// most time, or the first if the rows are sorted. The sum of the times stays.
func TopRows(all []Row, n int, sorted bool) []Row {
	if n == 0 {
		return all
	}
	var rows, joined []Row
	var kept []int
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
		kept = append(kept, keep...)
		if more := of[len(keep):]; len(more) > 0 {
			rest := sum(all, more)
			rest.Phase, rest.Op, rest.Name = "", "", fmt.Sprintf("%d more", len(more))
			joined = append(joined, rest)
		}
	}
	slices.Sort(kept)
	for _, i := range kept {
		if all[i].Kind == RowResidual {
			rows = append(rows, joined...)
			joined = nil
		}
		rows = append(rows, all[i])
	}
	return append(rows, joined...)
}
