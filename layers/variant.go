package layers

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gpt2scope/gpt2"
)

// The kinds of variants. A KindVerify is a depth that is measured to check a prediction; no line is fitted to it.
const (
	KindDepth  = "depth"
	KindDrop   = "drop"
	KindRepeat = "repeat"
	KindOrder  = "order"
	KindVerify = "verify"
)

// MaxDepth bounds how many layers a variant may run.
const MaxDepth = 4096

// Depth is the variant that runs n layers of a model with the given number of them: the first n, and beyond the last
// one again from the first.
func Depth(n, layers int) Variant {
	order := make([]int, n)
	for i := range order {
		order[i] = i % layers
	}
	return Variant{Label: strconv.Itoa(n), Kind: KindDepth, Layers: n, Order: order}
}

// Drop is the model without layer n.
func Drop(n, layers int) (Variant, error) {
	if err := hasLayer(n, layers); err != nil {
		return Variant{}, err
	}
	if layers == 1 {
		return Variant{}, fmt.Errorf("layer %d is the only one of the model; nothing would be left", n)
	}
	return variant(KindDrop, "drop "+strconv.Itoa(n), slices.Delete(gpt2.FirstLayers(layers), n, n+1)), nil
}

// RepeatLayer is the model with layer n run twice in a row.
func RepeatLayer(n, layers int) (Variant, error) {
	if err := hasLayer(n, layers); err != nil {
		return Variant{}, err
	}
	return variant(KindRepeat, "repeat "+strconv.Itoa(n), slices.Insert(gpt2.FirstLayers(layers), n, n)), nil
}

// InOrder is the model with another list of layers, such as "0,2,1".
func InOrder(list string, layers int) (Variant, error) {
	var order []int
	for _, field := range strings.Split(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(field))
		if err != nil {
			return Variant{}, fmt.Errorf("%q is not a layer; give numbers such as 0,2,1", field)
		}
		if err := hasLayer(n, layers); err != nil {
			return Variant{}, err
		}
		if order = append(order, n); len(order) > MaxDepth {
			return Variant{}, fmt.Errorf("there are more than %d layers", MaxDepth)
		}
	}
	return variant(KindOrder, "order "+joined(order, ","), order), nil
}

func variant(kind, label string, order []int) Variant {
	return Variant{Label: label, Kind: kind, Layers: len(order), Order: order}
}

func hasLayer(n, layers int) error {
	if n < 0 || n >= layers {
		return fmt.Errorf("layer %d does not exist; the model has layers 0 to %d", n, layers-1)
	}
	return nil
}

// joined writes numbers with something between them.
func joined(numbers []int, between string) string {
	return strings.Join(strings.Fields(strings.Trim(fmt.Sprint(numbers), "[]")), between)
}

// ParseDepths reads depths such as "1-6", "1,2,4,12" or "1-4,8". They come sorted, each once.
func ParseDepths(text string) ([]int, error) {
	var depths []int
	for _, part := range strings.Split(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err := strconv.Atoi(strings.TrimSpace(from))
		last, err2 := strconv.Atoi(strings.TrimSpace(to))
		switch {
		case err != nil || err2 != nil:
			return nil, fmt.Errorf("%q is not understood; give depths such as 1-6 or 1,2,4", part)
		case first < 1:
			return nil, fmt.Errorf("depth %d: a model runs at least 1 layer", first)
		case last < first:
			return nil, fmt.Errorf("%s is empty: it ends before it begins", part)
		case last > MaxDepth:
			return nil, fmt.Errorf("depth %d: at most %d layers can be run", last, MaxDepth)
		}
		for n := first; n <= last; n++ {
			depths = append(depths, n)
		}
		slices.Sort(depths) // here, so that a list of many ranges stays small
		depths = slices.Compact(depths)
	}
	return depths, nil
}
