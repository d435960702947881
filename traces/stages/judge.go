package stages

// Any sequence of products can be read as layers, also that of a convolutional network. What was found is a pass of a
// decoder if its layers have what those of a decoder have.
const (
	leastProducts = 0.7 // the least share of the four products of a layer that the layers of a whole pass have
	leastAnchors  = 0.7 // layers with a kernel named attention or softmax or, if more have one, LayerNorm
	leastAlike    = 0.6 // of products that are the same kernel in most layers
	leastTwins    = 0.9 // of all these, and of twins, where names say neither attention nor LayerNorm
)

// likeness says how much a pass is like one of a decoder: shares from 0 to 1.
type likeness struct {
	products, anchors, alike float64

	// twins is the share of layers where one kernel is at the place of both LayerNorms, and the four products have
	// names of products.
	twins float64

	layers int // that were compared
}

// judge drops what is no pass of a decoder: its kernels are of no stage.
func (f *finder) judge() {
	like := make([]likeness, len(f.passes))
	keep := make([]bool, len(f.passes))
	for n := range f.passes {
		p := &f.passes[n]
		isWhole := p.begun && p.end
		like[n] = f.liken(p)
		l := like[n]
		keep[n] = l.anchors >= leastAnchors && l.alike >= leastAlike && (!isWhole || l.products >= leastProducts) ||
			l.layers > 1 && min(l.twins, l.alike, l.products) >= leastTwins
	}
	number := make([]int, len(f.passes))
	var kept []found
	for n, p := range f.passes {
		if keep[n] {
			number[n] = len(kept)
			kept = append(kept, p)
			continue
		}
		number[n] = -1
		for i := p.from; i < p.to; i++ {
			if f.pass[i] == n {
				f.states[i], f.layer[i] = outside, -1
				f.sure[i] = 1 - min(like[n].anchors, like[n].alike)
			}
		}
	}
	for i, n := range f.pass {
		if n >= 0 {
			f.pass[i] = number[n]
		}
	}
	f.passes = kept
}

// products are the states of the products of a layer.
var products = [...]state{attn, proj, fc, down}

// liken compares a pass with one of a decoder.
func (f *finder) liken(p *found) likeness {
	type layer struct {
		products        [len(products)]int // the kernel, numbered from 1
		hasNorm, attend bool
		named           int // of the products
		norms           [2]int
	}
	layers := make([]layer, p.count)
	for i := p.from; i < p.to; i++ {
		n := f.layer[i]
		if n < 0 {
			continue
		}
		l, name, s := &layers[n], f.names[i], f.states[i]
		l.hasNorm = l.hasNorm || name.norm
		l.attend = l.attend || name.class == attention || name.class == softmax
		switch s {
		case ln1:
			l.norms[0] = f.keys[i] + 1
		case ln2:
			l.norms[1] = f.keys[i] + 1
		}
		for at, of := range products {
			if s == of && l.products[at] == 0 {
				l.products[at] = f.keys[i] + 1
				if name.class == product {
					l.named++
				}
			}
		}
	}
	if len(layers) == 0 {
		return likeness{}
	}
	var norms, attends, have, same, of, twins float64
	var kernels [len(products)]map[int]int
	for at := range products {
		kernels[at] = map[int]int{}
	}
	for _, l := range layers {
		if l.hasNorm {
			norms++
		}
		if l.attend {
			attends++
		}
		if l.norms[0] > 0 && l.norms[0] == l.norms[1] && l.named == len(products) {
			twins++
		}
		for at, key := range l.products {
			if key > 0 {
				have++
				kernels[at][key]++
			}
		}
	}
	for _, votes := range kernels {
		most := 0
		for _, n := range votes {
			most = max(most, n)
			of += float64(n)
		}
		same += float64(most)
	}
	n := float64(len(layers))
	return likeness{have / n / float64(len(products)), max(norms, attends) / n, same / max(1, of), twins / n,
		len(layers)}
}
