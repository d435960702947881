package traces

import "cmp"

// Shape is how a kernel was launched. Kernels of one name and different shapes are
// different rows. Zero fields are not known.
type Shape struct {
	Grid          [3]int32 `json:"grid"`  // blocks
	Block         [3]int32 `json:"block"` // threads
	Registers     int32    `json:"registers,omitempty"`
	StaticShared  int32    `json:"staticShared,omitempty"`  // bytes per block
	DynamicShared int32    `json:"dynamicShared,omitempty"` // bytes per block
}

// shapeOf returns the shape of a kernel, nothing for other work.
func shapeOf(e *Event) Shape {
	return Shape{e.Grid, e.Block, e.Registers, e.StaticShared, e.DynamicShared}
}

// compareShapes orders rows of one name.
func compareShapes(a, b *Shape) int {
	if a == nil || b == nil {
		return cmp.Compare(btoi(a != nil), btoi(b != nil))
	}
	for i := range a.Grid {
		if c := cmp.Or(cmp.Compare(a.Grid[i], b.Grid[i]), cmp.Compare(a.Block[i], b.Block[i])); c != 0 {
			return c
		}
	}
	return cmp.Or(cmp.Compare(a.Registers, b.Registers), cmp.Compare(a.StaticShared, b.StaticShared), cmp.Compare(a.DynamicShared, b.DynamicShared))
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
