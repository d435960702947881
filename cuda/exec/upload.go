package exec

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"runtime"
	"sync"

	"gpt2scope/cuda"
	"gpt2scope/gpt2"
	"gpt2scope/nvtx"
	"gpt2scope/nvtx/annotate"
	"gpt2scope/weights"
)

// uploaded are the parameters of a model on the device. Those of one upload share an allocation.
type uploaded struct {
	users  int
	arenas []*cuda.Buffer
	params map[string]param // never changed, since sessions read it: replaced by a larger one
}

// param is a parameter on the device.
type param struct {
	ptr  cuda.Ptr
	half cuda.Ptr // a vector in bfloat16, besides float32; 0 if weights are float32
}

// padVocab rounds a vocabulary up so that products of lm_head are aligned.
func padVocab(v int) int { return (v + 127) / 128 * 128 }

// isVector reports whether a parameter is a gain or bias, not a matrix.
func isVector(p gpt2.Param) bool { return len(p.Shape) == 1 }

// isStored reports whether a matrix is stored in the layout of the device: a row per output, or per entry of a table.
// The others are stored (K, N) and transposed to (N, K).
func isStored(p gpt2.Param) bool {
	return p.Name == "wte.weight" || p.Name == "wpe.weight" || p.Name == "lm_head.weight"
}

// rowsOf returns how many rows a stored matrix has on the device.
func rowsOf(p gpt2.Param) int {
	if p.Name == "wpe.weight" {
		return p.Shape[0]
	}
	return padVocab(p.Shape[0])
}

// bytesOf returns what a parameter takes on the device, both forms of a vector.
func (b *Backend) bytesOf(p gpt2.Param) int64 {
	if isVector(p) {
		return cuda.Align(4*int64(p.Elements())) + cuda.Align(2*int64(p.Elements()))
	}
	rows, columns := p.Shape[1], p.Shape[0]
	if isStored(p) {
		rows, columns = rowsOf(p), p.Shape[1]
	}
	return cuda.Align(int64(rows) * int64(b.typeOfMatrix(p).RowBytes(columns)))
}

// typeOfMatrix returns the type in which a matrix is held.
func (b *Backend) typeOfMatrix(p gpt2.Param) cuda.DType {
	if p.Name == "wpe.weight" {
		return b.dtype
	}
	return b.held
}

// acquire uploads what a run order needs and is not on the device yet. It returns the model's parameters with it.
func (b *Backend) acquire(ctx context.Context, m *gpt2.Model, layers []int,
	progress func(done, total int64)) (*uploaded, map[string]param, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, nil, fmt.Errorf("the cuda backend cannot run a session: %w", gpt2.ErrClosed)
	}
	u := b.models[m]
	if u == nil {
		u = &uploaded{}
		b.models[m] = u
	}
	u.users++
	if err := b.uploadMissing(ctx, m, u, layers, progress); err != nil {
		return nil, nil, cmp.Or(err, b.drop(m, u))
	}
	return u, u.params, nil
}

func (b *Backend) release(m *gpt2.Model, u *uploaded) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.drop(m, u)
}

func (b *Backend) drop(m *gpt2.Model, u *uploaded) error {
	if u.users--; u.users > 0 {
		return nil
	}
	delete(b.models, m)
	return u.free()
}

func (u *uploaded) free() error {
	var errs []error
	for _, a := range u.arenas {
		errs = append(errs, a.Free())
	}
	u.arenas = nil
	return cmp.Or(errs...)
}

func (b *Backend) uploadMissing(ctx context.Context, m *gpt2.Model, u *uploaded, layers []int,
	progress func(done, total int64)) (err error) {
	var todo []gpt2.Param
	var size, total int64
	for _, p := range m.Config.ParamsOf(layers) {
		if _, ok := u.params[p.Name]; !ok {
			todo = append(todo, p)
			size += b.bytesOf(p)
			total += int64(p.Elements())
		}
	}
	if len(todo) == 0 {
		return nil
	}
	defer annotate.Range("load "+m.Name, nvtx.Yellow)()
	arena, err := b.dev.Alloc(size)
	if err != nil {
		free, _, _ := b.dev.Memory()
		return fmt.Errorf("the weights of model %s take %d MiB of GPU memory and %d MiB are free: %w", m.Name, size>>20,
			free>>20, err)
	}
	l := loader{backend: b, model: m, arena: arena}
	params := maps.Clone(u.params)
	if params == nil {
		params = map[string]param{}
	}
	defer func() {
		if err = cmp.Or(err, l.close()); err != nil {
			_ = arena.Free() // the upload's error is the cause
			return
		}
		u.arenas, u.params = append(u.arenas, arena), params
	}()
	if err := l.open(todo); err != nil {
		return err
	}
	var done int64
	for _, p := range todo {
		if err := l.load(ctx, p, func(elements int) {
			if done += int64(elements); progress != nil {
				progress(done*int64(b.dtype.Size()), total*int64(b.dtype.Size()))
			}
		}); err != nil {
			return err
		}
		params[p.Name] = l.param
	}
	return l.packs.Synchronize()
}

// loader uploads: slices of a tensor are read into pinned memory, copied to the device by one stream and converted
// there by another, so that reading, copying and packing overlap.
type loader struct {
	backend *Backend
	model   *gpt2.Model
	arena   *cuda.Buffer
	used    int64
	param   param // the one loaded last

	copies, packs *cuda.Stream
	room          int // bytes of a slot
	slots         [3]slot
	turn          int
}

// slot is a slice under way.
type slot struct {
	host           *cuda.HostBuffer
	raw            *cuda.Buffer // the same bytes on the device
	copied, packed *cuda.Event
	busy           bool
}

// sliceBytes is how much of a tensor is under way in a slot, at most.
const sliceBytes = 8 << 20

func (l *loader) open(todo []gpt2.Param) error {
	for _, p := range todo { // pinned memory is slow to allocate, so no more than is needed
		t, err := l.model.Tensor(p.Name)
		if err != nil {
			return err
		}
		if n := p.Elements(); n < sliceBytes {
			l.room = max(l.room, n*deviceTypes[t.DType].Size())
		} else {
			l.room = sliceBytes
		}
	}
	l.room = min(l.room, sliceBytes)
	var err error
	if l.copies, err = l.backend.dev.NewStream(); err != nil {
		return err
	}
	if l.packs, err = l.backend.dev.NewStream(); err != nil {
		return err
	}
	// Rows and columns that pad a matrix stay zero.
	if err := l.packs.Set(l.arena, 0, 0, l.arena.Size()); err != nil {
		return err
	}
	for i := range l.slots {
		s, dev := &l.slots[i], l.backend.dev
		var errs [4]error
		s.host, errs[0] = dev.AllocHost(int64(l.room))
		s.raw, errs[1] = dev.Alloc(int64(l.room))
		s.copied, errs[2] = dev.NewEvent()
		s.packed, errs[3] = dev.NewEvent()
		if err := cmp.Or(errs[:]...); err != nil {
			return err
		}
	}
	return nil
}

func (l *loader) close() error {
	var errs []error
	for _, s := range []*cuda.Stream{l.copies, l.packs} {
		if s != nil {
			errs = append(errs, s.Synchronize(), s.Close()) // before slots that it reads are freed
		}
	}
	for _, s := range l.slots {
		errs = append(errs, free(s.host), free(s.raw))
		for _, e := range []*cuda.Event{s.copied, s.packed} {
			if e != nil {
				errs = append(errs, e.Close())
			}
		}
	}
	return cmp.Or(errs...)
}

// take cuts bytes from the arena.
func (l *loader) take(bytes int64) cuda.Ptr {
	p := l.arena.Ptr() + cuda.Ptr(l.used)
	l.used += cuda.Align(bytes)
	return p
}

var deviceTypes = map[weights.DType]cuda.DType{weights.F32: cuda.F32, weights.BF16: cuda.BF16, weights.F16: cuda.F16}

// load uploads one parameter.
func (l *loader) load(ctx context.Context, p gpt2.Param, progress func(elements int)) error {
	t, err := l.model.Tensor(p.Name)
	if err != nil {
		return err
	}
	if isVector(p) {
		n := p.Elements()
		l.param = param{ptr: l.take(4 * int64(n)), half: l.take(2 * int64(n))}
		if l.backend.dtype == cuda.F32 {
			l.param.half = 0
		}
		return l.slices(ctx, t, p.Name, n, 1, progress, func(s *cuda.Stream, raw cuda.Ptr, from, count int,
			src cuda.DType) error {
			a := cuda.PackArgs{Src: raw, Dst: l.param.ptr + cuda.Ptr(4*from), Rows: 1, Cols: int32(count), LDDst: int32(count),
				SrcType: src, DstType: cuda.F32}
			if err := s.Pack(a); err != nil || l.param.half == 0 {
				return err
			}
			a.Dst, a.DstType = l.param.half+cuda.Ptr(2*from), cuda.BF16
			return s.Pack(a)
		})
	}
	rows, cols, dtype := p.Shape[0], p.Shape[1], l.backend.typeOfMatrix(p)
	l.param = param{ptr: l.take(l.backend.bytesOf(p))}
	return l.slices(ctx, t, p.Name, rows, cols, progress, func(s *cuda.Stream, raw cuda.Ptr, from, count int,
		src cuda.DType) error {
		a := cuda.PackArgs{Src: raw, Rows: int32(count), Cols: int32(cols), SrcType: src, DstType: dtype}
		if isStored(p) {
			a.Dst, a.LDDst = l.param.ptr+cuda.Ptr(from*dtype.RowBytes(cols)), int32(cols)
		} else if a.Transpose, a.Dst, a.LDDst = 1, l.param.ptr, int32(rows); dtype == cuda.Q8 {
			a.First = int32(from)
		} else {
			a.Dst += cuda.Ptr(from * dtype.Size())
		}
		return s.Pack(a)
	})
}

// slices reads a tensor of (rows, cols) slice by slice, copies it to the device and has it packed there.
func (l *loader) slices(ctx context.Context, t weights.Tensor, name string, rows, cols int, progress func(elements int),
	pack func(s *cuda.Stream, raw cuda.Ptr, from, count int, src cuda.DType) error) error {
	src := deviceTypes[t.DType]
	size := cols * src.Size()
	if size > sliceBytes {
		return fmt.Errorf("tensor %s has rows of %d bytes; at most %d can be uploaded", name, size, sliceBytes)
	}
	per := sliceBytes / size
	if per >= 32 {
		per -= per % 32 // whole blocks of 8-bit weights
	}
	for r := 0; r < rows; r += per {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		n := min(per, rows-r)
		s := &l.slots[l.turn%len(l.slots)]
		l.turn++
		if s.busy {
			if err := s.packed.Synchronize(); err != nil {
				return err
			}
		}
		raw := s.host.Bytes()[:n*size]
		bad, err := readChecked(t, raw, int64(r)*int64(size), l.backend.dtype)
		if err != nil {
			return err
		}
		if bad >= 0 { // read it again: that error names the file too
			if err := l.model.Read(name, make([]float32, n*cols), r*cols); err != nil {
				return err
			}
			return fmt.Errorf("tensor %s: element %d is beyond the range of bfloat16; use --dtype f32", name, r*cols+bad)
		}
		s.busy = true
		if err := cmp.Or(l.copies.CopyToDevice(s.raw, 0, s.host, 0, int64(n*size)), l.copies.Record(s.copied),
			l.packs.Wait(s.copied), pack(l.packs, s.raw.Ptr(), r, n, src), l.packs.Record(s.packed)); err != nil {
			return err
		}
		progress(n * cols)
	}
	return nil
}

// readChecked reads bytes of a tensor, and returns the first element that is out of range of the type that holds it on
// the device, -1 if there is none.
func readChecked(t weights.Tensor, dst []byte, off int64, held cuda.DType) (int, error) {
	none := len(dst)
	var mu sync.Mutex
	first := none
	err := t.ReadParallel(dst, off, runtime.GOMAXPROCS(0), func(from int, part []byte) {
		if n := firstUnheld(part, t.DType, held); n >= 0 {
			mu.Lock()
			first = min(first, from/deviceTypes[t.DType].Size()+n)
			mu.Unlock()
		}
	})
	if first == none {
		first = -1
	}
	return first, err
}

// firstUnheld returns the first element that is infinite or NaN, or would be once it is held in another type; -1 if
// none is.
func firstUnheld(raw []byte, t weights.DType, held cuda.DType) int {
	if t == weights.F32 {
		limit := uint32(0x7f800000)
		if held == cuda.BF16 {
			limit = 0x7f7f8000 // rounds up to infinity
		}
		for i := 0; i < len(raw); i += 4 {
			if binary.LittleEndian.Uint32(raw[i:])&0x7fffffff >= limit {
				return i / 4
			}
		}
		return -1
	}
	limit := map[weights.DType]uint16{weights.BF16: 0x7f80, weights.F16: 0x7c00}[t]
	for i := 0; i < len(raw); i += 2 {
		if binary.LittleEndian.Uint16(raw[i:])&0x7fff >= limit {
			return i / 2
		}
	}
	return -1
}
