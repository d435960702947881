package weights

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"slices"
)

// WriteOptions says how tensors are written.
type WriteOptions struct {
	DType DType // that they are converted to: F32 (also "") or BF16

	// Progress, if not nil, is called now and then with the number of bytes
	// written so far and the size that the file will have.
	Progress func(written, size int64)
}

// Write writes tensors of floats to a safetensors file at path, in the given order. It holds a piece of one tensor at a
// time, and replaces the file as WriteFile does: as a whole, or, on an error or when ctx is cancelled, not at all.
//
// Elements are rounded to nearest, ties to even, if they become narrower. A finite number beyond the range of the
// narrower type is an error.
func Write(ctx context.Context, path string, tensors []Tensor, options WriteOptions) error {
	return WriteFile(ctx, path, planWrite(tensors, options).write)
}

// writePlan is all that is decided before the first byte is written.
type writePlan struct {
	tensors  []Tensor
	dtypes   []DType // of each in the file
	header   []byte  // with its length, padded
	size     int64
	align    int64 // each tensor begins at a multiple of it
	progress func(written, size int64)
}

// add adds a tensor, and returns where its elements begin after the header.
func (p *writePlan) add(t Tensor, d DType) (begin int64) {
	begin = p.size
	p.tensors, p.dtypes = append(p.tensors, t), append(p.dtypes, d)
	p.size = (p.size + byteSize(t.n, d) + p.align - 1) &^ (p.align - 1)
	return begin
}

func planWrite(tensors []Tensor, options WriteOptions) *writePlan {
	dtype, plan := cmp.Or(options.DType, F32), &writePlan{align: 1, progress: options.Progress}
	entries := map[string]any{"__metadata__": map[string]string{"format": "pt"}} // else transformers does not load it
	for _, t := range tensors {
		begin := plan.add(t, dtype)
		entries[t.Name] = description[int]{dtype, append([]int{}, t.Shape...), []int{int(begin), int(plan.size)}}
	}
	text, _ := json.Marshal(entries) // none of it fails
	plan.header = append(make([]byte, 8), text...)
	for len(plan.header)%8 != 0 { // so that the data are aligned
		plan.header = append(plan.header, ' ')
	}
	binary.LittleEndian.PutUint64(plan.header, uint64(len(plan.header)-8))
	plan.size += int64(len(plan.header))
	return plan
}

func (p *writePlan) write(w io.Writer) error {
	written := int64(0)
	put := func(b []byte) error {
		n, err := w.Write(b)
		written += int64(n)
		if err == nil && p.progress != nil {
			p.progress(written, p.size)
		}
		return err
	}
	if err := put(p.header); err != nil {
		return err
	}
	var elements []float32
	var encoded []byte
	for i, t := range p.tensors {
		piece := 1 << 18 // elements
		if t.turned != nil {
			piece = min(1<<22, t.n) // of many columns, since what is read to find one may hold many
		}
		elements, encoded = slices.Grow(elements[:0], piece)[:piece], slices.Grow(encoded[:0], 2*piece)[:2*piece]
		if err := put(make([]byte, -written&(p.align-1))); err != nil {
			return err
		}
		for off := 0; off < t.n; off += piece {
			x := elements[:min(piece, t.n-off)]
			if err := t.ReadFloat32(x, off); err != nil {
				return err
			}
			b := float32Bytes(x)
			if p.dtypes[i] == BF16 {
				b = encoded[:2*len(x)]
				if at := bf16FromFloat32(b, x); at >= 0 {
					return t.problem("element %d is %g, which BF16 cannot hold: write F32 instead", off+at, x[at])
				}
			}
			if err := put(b); err != nil {
				return err
			}
		}
	}
	return nil
}
