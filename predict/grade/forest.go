package grade

import (
	"math"
	"math/rand/v2"
	"slices"

	"gpt2scope/predict"
)

// A random forest (Breiman, "Random Forests", 2001) of regression trees on the logarithm of the time. Each tree is
// grown on rows drawn with replacement; each split is the best of a third of the features, drawn anew.
const (
	trees    = 40
	leafRows = 2 // no leaf is smaller
)

type forest struct {
	names map[string]float64 // numbers of tasks, types and machines
	trees [][]node
}

// node is a split, or a leaf if feature is below 0.
type node struct {
	feature     int
	at          float64 // to the left up to it
	left, right int
	value       float64
}

const features = 13

// row returns the features of work.
func (f *forest) row(r *predict.Row) [features]float64 {
	l := func(v float64) float64 { return math.Log(v + 1e-3) }
	gpu, cold := 0.0, 0.0
	if predict.Kind(r.Device) == "cuda" {
		gpu = 1
	}
	if r.Cold {
		cold = 1
	}
	return [features]float64{l(r.FloorUs), l(r.FLOPs), l(r.Bytes), l(r.BytesIn), l(r.BytesOut), l(r.Steps), l(r.Rows), float64(r.Memory), cold, gpu,
		f.number(r.Task), f.number(r.DType), f.number(r.Machine)}
}

// number returns that of a name, -1 of one that the fit has not seen.
func (f *forest) number(name string) float64 {
	if n, ok := f.names[name]; ok {
		return n
	}
	return -1
}

func fitForest(rows []predict.Row) (Predictor, error) {
	f := &forest{names: map[string]float64{}}
	for _, r := range rows {
		for _, name := range []string{r.Task, r.DType, r.Machine} {
			if _, ok := f.names[name]; !ok {
				f.names[name] = float64(len(f.names))
			}
		}
	}
	x, y := make([][features]float64, len(rows)), make([]float64, len(rows))
	for i := range rows {
		x[i], y[i] = f.row(&rows[i]), math.Log(rows[i].Us)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range trees {
		g := grower{x: x, y: y, random: random}
		drawn := make([]int, len(rows))
		for i := range drawn {
			drawn[i] = random.IntN(len(rows))
		}
		if len(rows) > 0 {
			g.grow(drawn)
		}
		f.trees = append(f.trees, g.nodes)
	}
	return f, nil
}

type grower struct {
	x      [][features]float64
	y      []float64
	random *rand.Rand
	nodes  []node
}

// grow adds the tree of rows, and returns its root.
func (g *grower) grow(rows []int) int {
	sum := 0.0
	for _, i := range rows {
		sum += g.y[i]
	}
	at := len(g.nodes)
	g.nodes = append(g.nodes, node{feature: -1, value: sum / float64(len(rows))})
	if len(rows) < 2*leafRows {
		return at
	}
	best, feature, where := sum*sum/float64(len(rows))+1e-9, -1, 0.0
	tried := 0
	for _, j := range g.random.Perm(features) {
		slices.SortFunc(rows, func(a, b int) int {
			switch d := g.x[a][j] - g.x[b][j]; {
			case d < 0:
				return -1
			case d > 0:
				return 1
			}
			return a - b
		})
		if g.x[rows[0]][j] == g.x[rows[len(rows)-1]][j] {
			continue // a feature that does not differ here
		}
		left := 0.0
		for k := 1; k < len(rows); k++ {
			left += g.y[rows[k-1]]
			a, b := g.x[rows[k-1]][j], g.x[rows[k]][j]
			if a == b || k < leafRows || len(rows)-k < leafRows {
				continue
			}
			right := sum - left
			if gain := left*left/float64(k) + right*right/float64(len(rows)-k); gain > best {
				best, feature, where = gain, j, (a+b)/2
			}
		}
		if tried++; tried >= features/3 {
			break
		}
	}
	if feature < 0 {
		return at
	}
	var left, right []int
	for _, i := range rows {
		if g.x[i][feature] <= where {
			left = append(left, i)
		} else {
			right = append(right, i)
		}
	}
	if len(left) == 0 || len(right) == 0 {
		return at
	}
	l := g.grow(left)
	r := g.grow(right)
	g.nodes[at] = node{feature, where, l, r, 0}
	return at
}

func (f *forest) Time(r *predict.Row) float64 {
	x, sum, n := f.row(r), 0.0, 0.0
	for _, t := range f.trees {
		if len(t) == 0 {
			continue
		}
		at := 0
		for t[at].feature >= 0 {
			if x[t[at].feature] <= t[at].at {
				at = t[at].left
			} else {
				at = t[at].right
			}
		}
		sum, n = sum+t[at].value, n+1
	}
	return math.Exp(sum / n)
}
