package exec

import (
	"encoding/binary"
	"fmt"
	"math"
	"runtime"

	"gpt2scope/cuda"
	"gpt2scope/gpt2"
	"gpt2scope/nvtx"
	"gpt2scope/nvtx/annotate"
	"gpt2scope/weights"
)

// lastPass is what Read reads of.
type lastPass struct {
	plan       *gpt2.Plan // nil before the first pass
	rows       int        // per sequence that the caller gave to it, without padding
	logitsOnly bool       // the kernel of mode persistent leaves no other activations
}

// layout is where rows of a buffer of the last pass lie on the device.
type layout struct {
	dtype     cuda.DType
	width, ld int // elements of a row that are wanted, and from a row to the next
	// of each sequence: rows on the device, those that the caller knows of; of the device's, where these begin
	of, rows, begin int
}

// layout returns where n elements of a buffer lie from a row on.
func (r *Runner) layout(b gpt2.Buffer, row, n int) (l layout, err error) {
	if r.failed != nil {
		return l, r.failed
	}
	plan := r.last.plan
	if plan == nil {
		return l, fmt.Errorf("buffer %s cannot be read before a pass", b)
	}
	shape := plan.Buffers[b]
	if r.last.logitsOnly && b != gpt2.BufLogits {
		return l, fmt.Errorf("buffer %s cannot be read after a decode step by the kernels of mode persistent, "+
			"which keep logits only; use mode graph", b)
	}
	if shape.Rows == 0 || b == gpt2.BufTokens {
		return l, fmt.Errorf("the last pass has no buffer %s", b)
	}
	l = layout{dtype: r.backend.typeOf(b, plan), width: shape.Width, ld: pitch(b, plan), of: shape.Rows, rows: shape.Rows}
	if shape.Rows == plan.Pass.Tokens {
		l.rows = r.last.rows
	}
	l.begin = l.of - l.rows
	if size := plan.Pass.Batch * l.rows * l.width; row < 0 || row*l.width+n > size {
		return l, fmt.Errorf("buffer %s has %d elements; %d from row %d on are not all in it", b, size, n, row)
	}
	return l, nil
}

// rowBytes is how far a row is from the next.
func (l *layout) rowBytes() int { return l.ld * l.dtype.Size() }

// part returns from which byte of the buffer on how many of some rows lie side by side. Rows of one sequence do. Those
// of the next one follow at once, unless padding lies
// between them.
func (l *layout) part(row, rows int) (from int64, n int) {
	seq, at := row/l.rows, row%l.rows
	if l.begin > 0 {
		rows = min(rows, l.rows-at)
	}
	return int64(seq*l.of+l.begin+at) * int64(l.rowBytes()), rows
}

// widen converts what was copied of rows to float32, until dst is full, and returns what is left of dst.
func (l *layout) widen(dst []float32, src []byte, rows int) []float32 {
	for i := range rows {
		m := min(l.width, len(dst))
		widen(dst[:m], src[i*l.rowBytes():], l.dtype)
		dst = dst[m:]
	}
	return dst
}

// Read copies rows of a buffer of the last pass.
func (r *Runner) Read(b gpt2.Buffer, row int, dst []float32) error {
	l, err := r.layout(b, row, len(dst))
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer annotate.Range("read "+b.String(), nvtx.Yellow)()
	if err := r.stream.Synchronize(); err != nil {
		return err
	}
	raw := make([]byte, l.rowBytes()*min(readRows, (len(dst)+l.width-1)/l.width))
	for len(dst) > 0 {
		from, n := l.part(row, min(readRows, (len(dst)+l.width-1)/l.width))
		part := raw[:n*l.rowBytes()]
		if err := r.memory.buffers[b].Read(from, part); err != nil {
			return err
		}
		dst = l.widen(dst, part, n)
		row += n
	}
	return nil
}

// ReadBytes returns how much pinned memory [Runner.BeginRead] needs for n elements.
func (r *Runner) ReadBytes(b gpt2.Buffer, n int) (int64, error) {
	l, err := r.layout(b, 0, n)
	if err != nil {
		return 0, err
	}
	return int64((n+l.width-1)/l.width) * int64(l.rowBytes()), nil
}

// BeginRead begins to copy the first n elements of a buffer of the last pass to pinned memory, and does not wait. The
// copy is done once [Runner.Idle] says so, if no pass has begun
// since; then end converts the elements.
func (r *Runner) BeginRead(b gpt2.Buffer, n int, to *cuda.HostBuffer) (end func(dst []float32), err error) {
	l, err := r.layout(b, 0, n)
	if err != nil {
		return nil, err
	}
	rows := (n + l.width - 1) / l.width
	for row := 0; row < rows; {
		from, some := l.part(row, rows-row)
		if err := r.stream.CopyToHost(to, int64(row*l.rowBytes()), r.memory.buffers[b], from,
			int64(some*l.rowBytes())); err != nil {
			return nil, err
		}
		row += some
	}
	return func(dst []float32) { l.widen(dst[:n], to.Bytes(), rows) }, nil
}

// Idle tells whether the device has done all that was launched.
func (r *Runner) Idle() (bool, error) {
	if r.failed != nil {
		return false, r.failed
	}
	return r.stream.Query()
}

// readRows is how many rows are copied to the host at a time.
const readRows = 64

// widen converts elements to float32.
func widen(dst []float32, src []byte, t cuda.DType) {
	if t == cuda.F32 {
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
		return
	}
	for i := range dst {
		dst[i] = weights.BFloat16ToFloat32(binary.LittleEndian.Uint16(src[2*i:]))
	}
}
