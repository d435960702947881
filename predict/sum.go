package predict

// lanes is how many points are summed at once: float64 numbers of a vector of 256 bits.
const lanes = 4

// block is some points as predictions sum them, feature by feature. A place that holds no point has weight 0.
type block struct {
	square [lanes]float64 // of the distance of each point from 0
	at     [features][lanes]float64
	weight [lanes]float64
}

// packed returns points in blocks, an even number of them.
func packed(points []point) []block {
	all := make([]block, (len(points)+2*lanes-1)/(2*lanes)*2)
	for i := range points {
		p, b, lane := &points[i], &all[i/lanes], i%lanes
		for k, v := range p.at {
			b.at[k][lane] = v
			b.square[lane] += v * v
		}
		b.weight[lane] = p.weight
	}
	return all
}

// origin is where a sum over points is taken, of which the squared distance to a point p is own + p p + p minusTwice.
type origin struct {
	minusTwice [features]float64
	own        float64 // 1 + the square of its distance from 0
}

// origin returns that of features, no further out than where work was measured. It is written out since a copy of an array that was written number by
// number waits for all of them.
func (c *cloud) origin(at *[features]float64) origin {
	v0, v5 := min(max(at[ofFloor], c.floor.Min), c.floor.Max), min(max(at[ofBytes], c.bytes.Min), c.bytes.Max)
	v1, v2, v3, v4, v6, v7, v8 := at[1], at[2], at[3], at[4], at[6], at[7], at[8]
	return origin{
		minusTwice: [features]float64{-2 * v0, -2 * v1, -2 * v2, -2 * v3, -2 * v4, -2 * v5, -2 * v6, -2 * v7, -2 * v8},
		own:        (1 + v0*v0 + v1*v1) + (v2*v2 + v3*v3) + (v4*v4 + v5*v5) + (v6*v6 + v7*v7 + v8*v8),
	}
}

// sum adds weight / (1 + distance^2) over all points of blocks: near, where the squared distance of p and h is p p - 2 p h + h h, of which
// p p is known before.
func (p *origin) sum(blocks []block) float64 {
	if vectors && len(blocks) > 0 {
		return sumVectors(&blocks[0], len(blocks), p)
	}
	return p.sumPlain(blocks)
}

// sumPlain is sum for any processor.
func (p *origin) sumPlain(blocks []block) float64 {
	total := 0.0
	for i := range blocks {
		b := &blocks[i]
		d0, d1, d2, d3 := p.own+b.square[0], p.own+b.square[1], p.own+b.square[2], p.own+b.square[3]
		for k, h := range p.minusTwice {
			at := &b.at[k]
			d0, d1, d2, d3 = d0+h*at[0], d1+h*at[1], d2+h*at[2], d3+h*at[3]
		}
		w := &b.weight
		total += (w[0]*d1+w[1]*d0)/(d0*d1) + (w[2]*d3+w[3]*d2)/(d2*d3)
	}
	return total
}
