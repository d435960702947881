package tables

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"gpt2scope/traces"
)

// Shape is how a kernel was launched. Kernels of one name and different shapes are
// different rows. Zero fields are not known.
type Shape struct {
	Grid          [3]int32 `json:"grid"`  // blocks
	Block         [3]int32 `json:"block"` // threads
	Registers     int32    `json:"registers,omitempty"`
	StaticShared  int32    `json:"static_shared,omitempty"`  // bytes per block
	DynamicShared int32    `json:"dynamic_shared,omitempty"` // bytes per block
}

// ShapeOf returns the shape of a kernel, nothing for other work.
func ShapeOf(e *traces.Event) Shape {
	return Shape{e.Grid, e.Block, e.Registers, e.StaticShared, e.DynamicShared}
}

// Known reports whether the source gave the launch shape.
func (s *Shape) Known() bool { return s != nil && s.Blocks() > 0 && s.Threads() > 0 }

// Blocks returns how many blocks the grid has, 0 if not known.
func (s *Shape) Blocks() int64 { return volume(s.Grid) }

// Threads returns how many threads a block has, 0 if not known.
func (s *Shape) Threads() int64 { return volume(s.Block) }

// Dims writes a grid or block without the ones at its end: "18x6".
func Dims(d [3]int32) string {
	text := strconv.Itoa(int(d[0]))
	for i := 1; i < 3 && (d[i] != 1 || d[2] != 1); i++ {
		text += "x" + strconv.Itoa(int(d[i]))
	}
	return text
}

func volume(d [3]int32) int64 {
	n := int64(1)
	for _, v := range d {
		if v <= 0 || n > math.MaxInt64/int64(v) {
			return 0
		}
		n *= int64(v)
	}
	return n
}

// Occupancy says how a kernel fills a device by its launch shape alone: the theoretical
// occupancy, as CUDA's occupancy calculator has it.
type Occupancy struct {
	Warps   int64   `json:"warps"`   // of a block
	Blocks  int64   `json:"blocks"`  // that an SM can hold at once
	Percent float64 `json:"percent"` // warps that an SM holds then, of those that it can hold
	Limit   string  `json:"limit"`   // why no more blocks fit: "blocks", "warps", "registers", "shared memory"

	// Waves is how often the device must be filled to run all blocks, and Tail how much of
	// the last wave is empty, in percent. Both are 0 if the number of SMs is not known.
	Waves float64 `json:"waves,omitempty"`
	Tail  float64 `json:"tail"`
}

// The units in which an SM gives registers and shared memory to blocks, since
// compute capability 8.0 (CUDA occupancy calculator).
const (
	warpSize           = 32
	registersPerUnit   = 256 // a warp's registers are a multiple
	warpsPerUnit       = 4   // an SM has 4 partitions, and a warp's registers are in one
	sharedPerUnit      = 128 // bytes
	reservedPerBlock   = 1 << 10
	reservedFromMajor  = 8 // compute capability from which the driver reserves shared memory
	defaultRegsPerSM   = 64 << 10
	mostThreadsInBlock = 1024
)

// blocksPerSM is what an SM holds at most, by compute capability (CUDA C++
// Programming Guide, technical specifications), for sources that do not say it.
var blocksPerSM = map[string]int{"7.0": 32, "7.2": 32, "7.5": 16, "8.0": 32, "8.6": 16, "8.7": 16, "8.9": 24,
	"9.0": 32, "10.0": 32, "12.0": 24}

// OccupancyOf works out the theoretical occupancy of a launch shape on a device. ok is false if the source says too
// little, or if by what it says the block does not fit on an SM.
func OccupancyOf(d *traces.Device, s *Shape) (o Occupancy, ok bool) {
	if !s.Known() || s.Threads() > mostThreadsInBlock || s.Registers <= 0 || s.StaticShared < 0 || s.DynamicShared < 0 {
		return o, false
	}
	perSM := int64(cmp.Or(d.BlocksPerSM, blocksPerSM[d.Compute]))
	registers := int64(cmp.Or(d.RegistersPerSM, defaultRegsPerSM))
	const most = 1 << 24 // of anything a device has: beyond it the source is damaged
	if perSM <= 0 || perSM > most || d.WarpsPerSM <= 0 || d.WarpsPerSM > most || registers <= 0 || d.SMs > most {
		return o, false
	}
	o.Warps = (s.Threads() + warpSize - 1) / warpSize
	perWarp := roundUp(int64(s.Registers)*warpSize, registersPerUnit)
	warpsByRegisters := registers / perWarp / warpsPerUnit * warpsPerUnit
	shared := int64(s.StaticShared) + int64(s.DynamicShared)
	major, _, _ := strings.Cut(d.Compute, ".")
	if n, err := strconv.Atoi(major); err == nil && n >= reservedFromMajor {
		shared += reservedPerBlock
	}
	shared = roundUp(shared, sharedPerUnit)
	type limit struct {
		name   string
		blocks int64
	}
	limits := []limit{{"warps", int64(d.WarpsPerSM) / o.Warps}, {"registers", warpsByRegisters / o.Warps}}
	switch {
	case d.SharedPerSM > 0 && shared > 0:
		limits = append(limits, limit{"shared memory", int64(d.SharedPerSM) / shared})
	case s.StaticShared > 0 || s.DynamicShared > 0:
		return o, false
	}
	limits = append(limits, limit{"blocks", perSM})
	o.Blocks = math.MaxInt64
	var names []string
	for _, l := range limits {
		if l.blocks < o.Blocks {
			o.Blocks, names = l.blocks, nil
		}
		if l.blocks == o.Blocks {
			names = append(names, l.name)
		}
	}
	if o.Blocks <= 0 {
		return o, false
	}
	o.Limit = strings.Join(names, ", ")
	o.Percent = 100 * float64(o.Blocks*o.Warps) / float64(d.WarpsPerSM)
	if d.SMs > 0 {
		wave := int64(d.SMs) * o.Blocks
		o.Waves = float64(s.Blocks()) / float64(wave)
		if rest := s.Blocks() % wave; rest > 0 {
			o.Tail = 100 * float64(wave-rest) / float64(wave)
		}
	}
	return o, true
}

func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }

// compareShapes orders rows of one name.
func compareShapes(a, b *Shape) int {
	a, b = cmp.Or(a, &Shape{}), cmp.Or(b, &Shape{})
	return cmp.Or(slices.Compare(a.Grid[:], b.Grid[:]), slices.Compare(a.Block[:], b.Block[:]),
		cmp.Compare(a.Registers, b.Registers),
		cmp.Compare(a.StaticShared, b.StaticShared), cmp.Compare(a.DynamicShared, b.DynamicShared))
}
