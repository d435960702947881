package weights

import (
	"archive/zip"
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// FormTorch is the form of a file that torch.save wrote, since PyTorch 1.6: a zip archive of a pickle, NAME/data.pkl,
// and of a file NAME/data/KEY, uncompressed, for each storage of elements that the pickle refers to.
const FormTorch = "PyTorch"

// torchArchive is an opened file of that form.
type torchArchive struct {
	file    *storage
	folder  string // NAME
	entries map[string]*zip.File
}

func (a *torchArchive) fail(format string, args ...any) error {
	return problem(a.file.name, format, args...)
}

// read reads the tensors of the model in such a file: those of a state_dict, alone or beside other things (an
// optimizer's state, say), which are named in Rest. The elements stay where they are.
func (a *torchArchive) read(c *Checkpoint) error {
	z, err := zip.NewReader(a.file.at, a.file.size)
	if err != nil {
		return problem(a.file.name, "is a zip archive that cannot be read: it is truncated or damaged, copy or "+
			"download it again").of(err)
	}
	for _, f := range z.File {
		if a.entries[f.Name] != nil {
			return a.fail("the archive has two files of the name %s: it is damaged or malicious", quote(f.Name))
		}
		a.entries[f.Name] = f
		if dir, file := path.Split(f.Name); file == "data.pkl" && strings.Count(dir, "/") == 1 {
			a.folder = dir
		}
	}
	switch {
	case a.folder == "":
		return a.fail("is a zip archive without data.pkl, so torch.save did not write it: give a checkpoint")
	case a.entries[a.folder+"constants.pkl"] != nil:
		return a.fail("is a TorchScript archive (as rust_model.ot is), a program with its weights: give the " +
			"model.safetensors or pytorch_model.bin that it was made from")
	}
	if order, err := a.bytes("byteorder", 16, ""); err == nil && strings.TrimSpace(string(order)) == "big" {
		return a.fail("was written on a big-endian machine: load it there, and save it as safetensors")
	}
	text, err := a.bytes("data.pkl", maxPickle, "the pickle")
	if err != nil {
		return err
	}
	value, err := unpickle(a.file.name+": data.pkl", text)
	if err != nil {
		return err
	}
	return a.contents(value, c)
}

// locate finds a file of the archive, and where its bytes begin in the archive's.
func (a *torchArchive) locate(name, what string) (begin, size int64, err error) {
	f := a.entries[a.folder+name]
	if f == nil {
		return 0, 0, a.fail("the archive lacks %s, %s: it is damaged, copy or download it again", quote(name), what)
	}
	begin, err = f.DataOffset()
	n := f.UncompressedSize64
	switch {
	case f.Method != zip.Store:
		return 0, 0, a.fail("%s is compressed, which torch.save does not do: unpack the archive, and pack it with zip -0",
			quote(f.Name))
	case err != nil || n != f.CompressedSize64 || begin > a.file.size || n > uint64(a.file.size-begin):
		return 0, 0, a.fail("%s reaches beyond the end of the file: it is truncated or damaged, copy or download it again",
			quote(f.Name))
	}
	return begin, int64(n), nil
}

// bytes reads a file of the archive, of so many bytes at most.
func (a *torchArchive) bytes(name string, most int64, what string) ([]byte, error) {
	begin, size, err := a.locate(name, what)
	if err == nil && size > most {
		err = a.fail("%s has %d bytes, and at most %d are read", what, size, most)
	}
	if err != nil {
		return nil, err
	}
	b := make([]byte, size)
	return b, a.file.readAt(b, begin)
}

// states are the keys under which training programs keep a model's state_dict, "" for a file that is one. It comes
// last: beside a state_dict there may be other tensors, such as a loss.
var states = []string{"model", "state_dict", "model_state_dict", "module", ""}

// contents finds the model in the value of the pickle.
func (a *torchArchive) contents(value any, c *Checkpoint) error {
	c.Form = FormTorch
	whole, ok := value.(dict)
	if !ok {
		return a.fail("holds no dictionary of tensors: give a checkpoint that torch.save wrote of a model's state_dict")
	}
	for _, key := range states {
		state, ok := whole[key].(dict)
		if key == "" {
			state, ok = whole, true
		}
		if !ok || !slices.ContainsFunc(slices.Collect(maps.Values(state)), isTensor) {
			continue
		}
		for name, v := range state {
			t, isTensor := v.(strided)
			if name, ok := name.(string); ok && isTensor {
				made, err := a.tensor(name, t)
				if err := cmp.Or(err, c.add(made)); err != nil {
					return err
				}
			} else {
				c.Rest = append(c.Rest, fmt.Sprint(name))
			}
		}
		if key != "" {
			for name := range whole {
				if name != key {
					c.Rest = append(c.Rest, fmt.Sprint(name))
				}
			}
			args, _ := whole["model_args"].(dict)
			for name, value := range args {
				if name, ok := name.(string); ok {
					if c.Args == nil {
						c.Args = map[string]any{}
					}
					c.Args[name] = value
				}
			}
		}
		slices.Sort(c.Rest)
		return nil
	}
	return a.fail("has no tensors by name, neither by themselves nor under %s: give a checkpoint that torch.save wrote "+
		"of a model's state_dict", strings.Join(states[:len(states)-1], ", "))
}

func isTensor(v any) bool { _, ok := v.(strided); return ok }

// tensor finds the elements of a tensor. They lie row by row, or column by column as those of a transposed matrix do.
func (a *torchArchive) tensor(name string, p strided) (Tensor, error) {
	t := Tensor{Name: name, DType: p.dtype, file: a.file}
	begin, size, err := a.locate("data/"+p.key, "the elements of "+quote(name))
	if err != nil {
		return t, err
	}
	shape, okShape := counts(p.size)
	stride, okStride := counts(p.stride)
	if !okShape || !okStride || len(shape) != len(stride) || p.offset < 0 {
		return t, t.problem("its sizes, strides and offset are not numbers of elements: the file is damaged")
	}
	if !setShape(&t, shape) {
		return t, t.problem("shape %s has too many elements", shapeString(shape))
	}
	width := int64(t.DType.Bits() / 8)
	if held := size / width; p.offset > held || int64(t.n) > held-p.offset {
		return t, t.problem("shape %s from element %d on needs more than the %d elements of its storage: the file is damaged",
			shapeString(shape), p.offset, held)
	}
	t.begin = begin + p.offset*width
	if t.n == 0 || rowMajor(shape, stride) {
		return t, nil
	}
	if len(shape) == 2 && rowMajor([]uint64{shape[1], shape[0]}, []uint64{stride[1], stride[0]}) {
		t.Shape[0], t.Shape[1] = t.Shape[1], t.Shape[0]
		return t.Transposed()
	}
	return t, t.problem("of shape %s has the strides %s, a view of other elements, which is not read: save it after "+
		".contiguous()", shapeString(shape), shapeString(stride))
}

// counts returns a pickle's numbers, and whether they are not negative.
func counts(numbers tuple) ([]uint64, bool) {
	list := make([]uint64, len(numbers))
	for i, v := range numbers {
		n, ok := v.(int64)
		if !ok || n < 0 {
			return nil, false
		}
		list[i] = uint64(n)
	}
	return list, true
}

// rowMajor tells whether elements with these strides follow one another. The shape has been checked.
func rowMajor(shape, stride []uint64) bool {
	next := uint64(1)
	for i := len(shape) - 1; i >= 0; i-- {
		if shape[i] != 1 && stride[i] != next {
			return false
		}
		next *= shape[i]
	}
	return true
}

// ReadCharacters reads the characters of a model from nanoGPT's meta.pkl, by id.
func ReadCharacters(file string, data []byte) ([]string, error) {
	if len(data) > maxPickle {
		return nil, problem(file, "is %d bytes long, and at most %d are read", len(data), maxPickle)
	}
	value, err := unpickle(file, data)
	if err != nil {
		return nil, err
	}
	whole, _ := value.(dict)
	itos, _ := whole["itos"].(dict)
	tokens := make([]string, len(itos))
	for i := range tokens {
		var ok bool
		if tokens[i], ok = itos[int64(i)].(string); !ok {
			return nil, problem(file, "its itos has no text for %d: only characters by id, as nanoGPT's prepare.py writes, "+
				"are read", i)
		}
	}
	if len(tokens) == 0 {
		return nil, problem(file, "has no itos, the characters by id, as nanoGPT's prepare.py writes")
	}
	return tokens, nil
}
