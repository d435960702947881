package exec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"gpt2scope/cuda"
)

// planStamps are where the kernels of a plan stamp. The first pass only finds out which kernels there are: it is not
// recorded.
//
// Products of a library do not stamp. Those of different steps that follow each other are separated by a marker kernel
// between them, which does nothing but stamp and costs as much as any launch. In graphs only each markedEvery-th pass
// has marker kernels; the other passes divide the time of such products as they took it there.
type planStamps struct {
	marked *stampSet
	plain  *stampSet // without marker kernels; the same set if none are needed; nil before the first pass
	passes int
}

const markedEvery = 16

// stampSet is where the kernels of a pass stamp. It is made ready by a first pass, which finds out which kernels there
// are.
type stampSet struct {
	variant // which stamps here
	stream  *cuda.Stream
	of      *planStamps
	items   []item
	done    int // launches of the pass under way
	ready   bool
	count   int          // areas
	areas   *cuda.Buffer // (count) areas, then passes and blocks of gs_collect_args
	ring    *cuda.Buffer // (rows, count) pairs
	rows    int
	passes  int      // launched since ready
	pairs   []uint64 // what was read of the ring
}

// item is a kernel that stamps, or a product of a library between two that do.
type item struct {
	step   int // -1: a marker kernel
	area   int // -1: of a library
	launch int // of the pass, counted without marker kernels
	name   string
	blocks int
}

// libraryName names products of a library, whose kernels' names are not known.
const libraryName = "library product"

func newStampSet(s *cuda.Stream) *stampSet {
	set := &stampSet{stream: s}
	set.stamps = set
	return set
}

func (s *stampSet) begin() error {
	if s.areas == nil { // one, so that areas are counted
		var err error
		if s.areas, err = zeroed(s.stream, cuda.StampArea); err != nil {
			return err
		}
	}
	s.items, s.done = s.items[:0], 0
	return s.stream.StampInto(s.areas.Ptr(), max(1, s.count))
}

// before puts a marker kernel between products of a library that belong to different steps, which nothing else
// separates.
func (s *stampSet) before(step int, l launch) error {
	plain := s.of.plain == s && s.of.marked != s
	if l.product == 0 || len(s.items) == 0 || plain {
		return nil
	}
	if last := s.items[len(s.items)-1]; last.area >= 0 || last.step == step {
		return nil
	}
	return s.mark()
}

func (s *stampSet) mark() error {
	if err := s.stream.Mark(); err != nil {
		return err
	}
	return s.took(-1)
}

// after notes which areas a launch took.
func (s *stampSet) after(step int, l launch) error {
	defer func() { s.done++ }()
	if l.product > 0 {
		s.items = append(s.items, item{step, -1, s.done, libraryName, 0})
		return nil
	}
	return s.took(step)
}

// took notes the areas that were taken since the last item.
func (s *stampSet) took(step int) error {
	used, err := s.stream.Stamped()
	if err != nil {
		return err
	}
	from := 0
	for _, it := range s.items {
		from = max(from, it.area+1)
	}
	for i := from; i < used; i++ {
		name, blocks, err := s.stream.StampedBy(i)
		if err != nil {
			return err
		}
		s.items = append(s.items, item{step, i, s.done, name, blocks})
	}
	return nil
}

// end collects the stamps of the pass. After the first, which only counted, it makes the areas.
func (s *stampSet) end() error {
	if n := len(s.items); n > 0 && s.items[n-1].area < 0 { // nothing else would bound it
		if err := s.mark(); err != nil {
			return err
		}
	}
	if !s.ready {
		return errors.Join(s.stream.StampInto(0, 0), s.stream.Synchronize(), s.areas.Free(), s.make())
	}
	tail := s.areas.Ptr() + cuda.Ptr(s.count*cuda.StampArea)
	return errors.Join(s.stream.StampInto(0, 0), s.stream.CollectStamps(cuda.CollectArgs{
		Count: uint32(s.count), Rows: uint32(s.rows), Areas: s.areas.Ptr(), Ring: s.ring.Ptr(), Passes: tail, Blocks: tail +
			cuda.Ptr(8*s.count)}))
}

// makePlain makes the set without marker kernels, where there are some between products and passes are replayed.
func (p *planStamps) makePlain(eager bool) error {
	plain := newStampSet(p.marked.stream)
	plain.of = p
	left, area := 0, 0
	for i, it := range p.marked.items {
		if it.step < 0 && i < len(p.marked.items)-1 { // one at the end bounds the last product
			left++
			continue
		}
		if it.area >= 0 {
			it.area = area
			area++
		}
		plain.items = append(plain.items, it)
	}
	p.plain = p.marked
	if left == 0 || eager {
		return nil
	}
	p.plain = plain
	return plain.make()
}

// make allocates areas and ring.
func (s *stampSet) make() error {
	s.count = 0
	for _, it := range s.items {
		s.count = max(s.count, it.area+1)
	}
	if s.count == 0 {
		return errors.New("a pass has no kernel that can be stamped")
	}
	s.rows = min(ringBytes/(s.count*cuda.StampPair), 1<<14)
	var err error
	if s.areas, err = zeroed(s.stream, int64(s.count*(cuda.StampArea+8+4))); err != nil {
		return fmt.Errorf("stamps of a pass: %w", err)
	}
	blocks := make([]byte, 4*s.count)
	for _, it := range s.items {
		if it.area >= 0 {
			binary.LittleEndian.PutUint32(blocks[4*it.area:], uint32(it.blocks))
		}
	}
	// Not before the zeros are there.
	if err := errors.Join(s.stream.Synchronize(), s.areas.Write(int64(s.count*(cuda.StampArea+8)), blocks)); err != nil {
		return err
	}
	if s.ring, err = s.stream.Device().Alloc(int64(s.rows * s.count * cuda.StampPair)); err != nil {
		return fmt.Errorf("stamps of %d passes: %w", s.rows, err)
	}
	s.ready = true
	return nil
}

// read reads the ring.
func (s *stampSet) read() error {
	n := min(s.passes, s.rows) * s.count
	if n == 0 {
		return nil
	}
	raw := make([]byte, n*cuda.StampPair)
	if err := s.ring.Read(0, raw); err != nil {
		return err
	}
	s.pairs = make([]uint64, 2*n)
	for i := range s.pairs {
		s.pairs[i] = binary.LittleEndian.Uint64(raw[8*i:])
	}
	return nil
}

// interval returns when item i of the pass in a row of the ring ran: of a library's product, from the end of the stamp
// before to the start of the stamp after it.
func (s *stampSet) interval(row, i int) (begin, end uint64) {
	pairs := s.pairs[2*row*s.count:]
	if a := s.items[i].area; a >= 0 {
		return pairs[2*a], pairs[2*a+1]
	}
	for _, before := range slices.Backward(s.items[:i]) {
		if before.area >= 0 {
			begin = pairs[2*before.area+1]
			break
		}
	}
	for _, later := range s.items[i+1:] {
		if later.area >= 0 {
			end = pairs[2*later.area]
			break
		}
	}
	return begin, end
}

// shares returns, for each item of a set that is no marker kernel, from where to where it reaches in the interval that
// it shares with its neighbours: 0 to 1 where it has its own.
func (p *planStamps) shares(of *stampSet) [][2]float64 {
	marked := p.marked
	var kept []int // items of the marked set that are no marker kernels
	for i, it := range marked.items {
		if it.step >= 0 {
			kept = append(kept, i)
		}
	}
	out := make([][2]float64, len(kept))
	for i := range out {
		out[i] = [2]float64{0, 1}
	}
	if of == marked || marked.pairs == nil {
		return out
	}
	length := make([]float64, len(kept)) // in all marked passes
	for k, i := range kept {
		if marked.items[i].area >= 0 {
			continue
		}
		if k > 0 && marked.items[i-1].area < 0 { // a further product of the same step
			continue
		}
		for row := range min(marked.passes, marked.rows) {
			if begin, end := marked.interval(row, i); end > begin {
				length[k] += float64(end - begin)
			}
		}
	}
	for k := 0; k < len(kept); {
		end, sum := k, 0.0
		for end < len(kept) && marked.items[kept[end]].area < 0 {
			sum += length[end]
			end++
		}
		at := 0.0
		for m := k; m < end && sum > 0; m++ {
			out[m] = [2]float64{at / sum, (at + length[m]) / sum}
			at += length[m]
		}
		k = max(end, k+1)
	}
	return out
}
