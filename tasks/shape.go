package tasks

import (
	"fmt"
	"strconv"
	"strings"
)

// Dim is a size by its name: "n", 1048576.
type Dim struct {
	Name  string
	Value int
}

// Shape is the sizes of a task, in the task's order.
type Shape []Dim

// String writes a shape: "m=256,n=256,k=256".
func (s Shape) String() string {
	var parts []string
	for _, d := range s {
		parts = append(parts, d.Name+"="+strconv.Itoa(d.Value))
	}
	return strings.Join(parts, ",")
}

// Get returns a size by its name, 0 if the shape has none.
func (s Shape) Get(name string) int {
	for _, d := range s {
		if d.Name == name {
			return d.Value
		}
	}
	return 0
}

// ParseShape reads what [Shape.String] writes.
func ParseShape(text string) (Shape, error) {
	var s Shape
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		n, err := strconv.Atoi(value)
		if name == "" || err != nil || n < 0 || n > 1<<40 || len(s) == 8 {
			return nil, fmt.Errorf("shape %q: %q is not one of at most 8 sizes such as n=1024", text, part)
		}
		s = append(s, Dim{name, n})
	}
	return s, nil
}
