package tasks

import (
	"errors"
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
	var b strings.Builder
	for i, d := range s {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(d.Name)
		b.WriteByte('=')
		b.WriteString(strconv.Itoa(d.Value))
	}
	return b.String()
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

// Bounds of a shape.
const (
	maxDims = 8
	maxDim  = 1 << 40
)

// ParseShape reads what [Shape.String] writes.
func ParseShape(text string) (Shape, error) {
	if text == "" {
		return nil, errors.New("the shape is empty; expected one such as n=1024")
	}
	var s Shape
	for part := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(part, "=")
		n, err := strconv.Atoi(value)
		if !ok || name == "" || err != nil || n < 0 || n > maxDim {
			return nil, fmt.Errorf("shape %q: %q is not a size such as n=1024", text, part)
		}
		for _, d := range s {
			if d.Name == name {
				return nil, fmt.Errorf("shape %q gives %s twice", text, name)
			}
		}
		if s = append(s, Dim{name, n}); len(s) > maxDims {
			return nil, fmt.Errorf("shape %q has more than %d sizes", text, maxDims)
		}
	}
	return s, nil
}
