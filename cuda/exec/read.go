package exec

import (
	"fmt"
	"runtime"

	"gpt2scope/cuda"
	"gpt2scope/gpt2"
	"gpt2scope/nvtx"
	"gpt2scope/nvtx/annotate"
)

// lastPass is what Read reads of.
type lastPass struct {
	plan       *gpt2.Plan // nil before the first pass
	rows       int        // per sequence that the caller gave to it, without padding
	logitsOnly bool       // the kernel of mode persistent leaves no other activations
	drafted    bool       // it may have verified drafts: the logits are those of r.drafts
}

// readBytes is about how much is copied to the host at a time.
const readBytes = 8 << 20

// Read copies rows of a buffer of the last pass.
func (r *Runner) Read(b gpt2.Buffer, row int, dst []float32) error {
	if r.failed != nil {
		return r.failed
	}
	plan := r.last.plan
	if plan == nil {
		return fmt.Errorf("buffer %s cannot be read before a pass", b)
	}
	shape := plan.Buffers[b]
	if r.last.logitsOnly && b != gpt2.BufLogits {
		return fmt.Errorf("buffer %s cannot be read after a decode step by the kernels of mode persistent, "+
			"which keep logits only; use mode graph", b)
	}
	if shape.Rows == 0 || b == gpt2.BufTokens {
		return fmt.Errorf("the last pass has no buffer %s", b)
	}
	width, dtype, rows := shape.Width, r.backend.typeOf(b, plan), shape.Rows // rows of a sequence that the caller knows of
	if rows == plan.Pass.Tokens {
		rows = r.last.rows
	}
	idle := shape.Rows - rows // before them
	if size := plan.Pass.Batch * rows * width; row < 0 || row*width+len(dst) > size {
		return fmt.Errorf("buffer %s has %d elements; %d from row %d on are not all in it", b, size, len(dst), row)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer annotate.Range("read "+b.String(), nvtx.Yellow)()
	if err := r.stream.Synchronize(); err != nil {
		return err
	}
	bytes := pitch(b, plan) * dtype.Size() // from a row to the next
	most := max(1, readBytes/bytes)
	raw := make([]byte, bytes*min(most, (len(dst)+width-1)/width))
	for len(dst) > 0 {
		n := min(most, (len(dst)+width-1)/width)
		if idle > 0 { // rows of the next sequence do not follow at once
			n = min(n, rows-row%rows)
		}
		from, at := r.memory.buffers[b], int64(row/rows*shape.Rows+idle+row%rows)*int64(bytes)
		if r.last.drafted {
			from, at = r.drafts.device, r.drafts.begin+int64(r.drafts.row*bytes)
		}
		if err := from.Read(at, raw[:n*bytes]); err != nil {
			return err
		}
		for i := range n {
			m := min(width, len(dst))
			cuda.DecodeInto(dst[:m], raw[i*bytes:], dtype)
			dst = dst[m:]
		}
		row += n
	}
	return nil
}
