package weights

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"slices"
	"unicode/utf8"
)

// WriteOptions says how Write writes. The zero value keeps every tensor's type.
type WriteOptions struct {
	// DType is the type that tensors of floats are converted to: F32 or BF16. Zero keeps each tensor's own.
	// Integers and booleans are never converted.
	DType DType

	// Metadata is stored beside the tensors. Hugging Face's transformers loads
	// only files that have {"format": "pt"} here.
	Metadata map[string]string

	// Progress, if not nil, is called now and then with the number of bytes
	// written so far and the size that the file will have.
	Progress func(written, size int64)
}

// Write writes tensors to a safetensors file at path, in the given order except that wider types come first, so that
// each tensor is aligned to its elements. It holds a piece of one tensor at a time, and replaces the file as WriteFile
// does: as a whole, or, on an error or when ctx is cancelled, not at all.
//
// Elements are copied bit for bit if the type does not change, and rounded to nearest, ties to even, if it becomes
// narrower. A finite number beyond the range of the narrower type is an error. So are two tensors of one name, and
// names that the format does not allow.
func Write(ctx context.Context, path string, tensors []Tensor, options WriteOptions) error {
	plan, err := planWrite(tensors, options)
	if err != nil {
		return err
	}
	return WriteFile(ctx, path, plan.write)
}

// writePlan is all that is decided before the first byte is written.
type writePlan struct {
	tensors  []Tensor // in the order of the file
	dtypes   []DType  // of each in the file
	header   []byte   // with its length, padded
	size     int64
	align    int64 // each tensor begins at a multiple of it
	progress func(written, size int64)
}

func planWrite(tensors []Tensor, options WriteOptions) (*writePlan, error) {
	if options.DType != "" && options.DType != F32 && options.DType != BF16 {
		return nil, problem("", "cannot convert tensors to %s, only to F32 or BF16", options.DType)
	}
	stored := func(t Tensor) DType {
		if options.DType == "" || dtypes[t.DType].exact {
			return t.DType
		}
		return options.DType
	}
	plan := &writePlan{tensors: slices.Clone(tensors), align: 1, progress: options.Progress}
	slices.SortStableFunc(plan.tensors, func(a, b Tensor) int { return stored(b).Bits() - stored(a).Bits() })

	for key, value := range options.Metadata {
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			return nil, problem("", "metadata %s: %s cannot be stored, because it is not UTF-8", quote(key), quote(value))
		}
	}
	entries := map[string]any{}
	if len(options.Metadata) > 0 {
		entries[metadataKey] = options.Metadata
	}
	end := int64(0)
	for _, t := range plan.tensors {
		switch {
		case t.file == nil && t.read == nil:
			return nil, t.checkRange(0, 0, 0)
		case t.Name == metadataKey, !utf8.ValidString(t.Name):
			return nil, t.problem("the format does not allow this name: rename the tensor")
		case entries[t.Name] != nil:
			return nil, t.problem("there are two tensors of this name")
		}
		d := stored(t)
		if d != t.DType && !t.DType.IsFloat() {
			return nil, t.notFloat()
		}
		plan.dtypes = append(plan.dtypes, d)
		begin := end
		end += byteSize(t.n, d)
		if end < begin {
			return nil, t.problem("the file would be too large")
		}
		entries[t.Name] = description[int]{d, append([]int{}, t.Shape...), []int{int(begin), int(end)}}
	}
	text, _ := json.Marshal(entries) // none of it fails in UTF-8
	header := append(make([]byte, 8), text...)
	for len(header)%8 != 0 { // so that the data are aligned
		header = append(header, ' ')
	}
	if len(header)-8 > maxHeader {
		return nil, problem("", "the header would be %d bytes long, and the most is %d: write fewer tensors", len(header)-8,
			maxHeader)
	}
	binary.LittleEndian.PutUint64(header, uint64(len(header)-8))
	plan.header = header
	plan.size = int64(len(header)) + end
	return plan, nil
}

// write writes the file.
func (p *writePlan) write(w io.Writer) error {
	const piece = 1 << 18 // elements
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
	encoded := make([]byte, 4*piece)
	var elements []float32
	for i, t := range p.tensors {
		if err := put(make([]byte, -written&(p.align-1))); err != nil {
			return err
		}
		if p.dtypes[i] == t.DType && t.file != nil {
			for off, size := int64(0), t.Bytes(); off < size; off += int64(len(encoded)) {
				b := encoded[:min(int64(len(encoded)), size-off)]
				if err := t.ReadBytes(b, off); err != nil {
					return err
				}
				if err := put(b); err != nil {
					return err
				}
			}
			continue
		}
		if elements == nil {
			elements = make([]float32, piece)
		}
		for off := 0; off < t.n; off += piece {
			x := elements[:min(piece, t.n-off)]
			if err := t.ReadFloat32(x, off); err != nil {
				return err
			}
			b, overflow := encoded[:byteSize(len(x), p.dtypes[i])], -1
			switch p.dtypes[i] {
			case F32:
				f32FromFloat32(b, x)
			case BF16:
				overflow = bf16FromFloat32(b, x)
			}
			if overflow >= 0 {
				return t.problem("element %d is %g, which %s cannot hold: write F32 instead", off+overflow, x[overflow],
					p.dtypes[i])
			}
			if err := put(b); err != nil {
				return err
			}
		}
	}
	return nil
}
