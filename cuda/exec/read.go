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

// Read copies rows of a buffer of the last pass.
func (r *Runner) Read(b gpt2.Buffer, row int, dst []float32) error {
	if r.failed != nil {
		return r.failed
	}
	plan := r.last.plan
	if plan == nil {
		return fmt.Errorf("buffer %s cannot be read before a pass", b)
	}
	shape, dtype, ld := plan.Buffers[b], r.backend.typeOf(b, plan), pitch(b, plan)
	if r.last.logitsOnly && b != gpt2.BufLogits {
		return fmt.Errorf("buffer %s cannot be read after a decode step by the kernels of mode persistent, which keep logits only; use mode graph", b)
	}
	if shape.Rows == 0 || b == gpt2.BufTokens {
		return fmt.Errorf("the last pass has no buffer %s", b)
	}
	rows := shape.Rows // those that the caller knows of
	if shape.Rows == plan.Pass.Tokens {
		rows = r.last.rows
	}
	if size := plan.Pass.Batch * rows * shape.Width; row < 0 || row*shape.Width+len(dst) > size {
		return fmt.Errorf("buffer %s has %d elements; %d from row %d on are not all in it", b, size, len(dst), row)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer annotate.Range("read "+b.String(), nvtx.Yellow)()
	if err := r.stream.Synchronize(); err != nil {
		return err
	}
	raw := make([]byte, ld*dtype.Size()*min(readRows, (len(dst)+shape.Width-1)/shape.Width))
	for len(dst) > 0 {
		// Rows of one sequence lie side by side. Those of the next one follow at once, unless padding lies between them.
		seq, at := row/rows, row%rows
		n := min(readRows, (len(dst)+shape.Width-1)/shape.Width)
		if rows < shape.Rows {
			n = min(n, rows-at)
		}
		from := int64(seq*shape.Rows+shape.Rows-rows+at) * int64(ld) * int64(dtype.Size())
		part := raw[:n*ld*dtype.Size()]
		if err := r.memory.buffers[b].Read(from, part); err != nil {
			return err
		}
		for i := range n {
			m := min(shape.Width, len(dst))
			widen(dst[:m], part[i*ld*dtype.Size():], dtype)
			dst = dst[m:]
		}
		row += n
	}
	return nil
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
