package weights

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
)

// The names that Hugging Face gives a checkpoint's files.
const (
	SingleFile = "model.safetensors"            // all tensors, if they are in one file
	IndexFile  = "model.safetensors.index.json" // which shard holds which tensor, otherwise
)

// Checkpoint is a set of named tensors. Its methods may be called from several goroutines at once.
type Checkpoint struct {
	// Metadata is the free-form text that was stored beside the tensors; empty, not nil, if there is none. Of shards
	// that disagree the first counts, in the order of their names.
	Metadata map[string]string

	tensors map[string]Tensor
	names   []string // sorted
	files   []*storage
	closed  atomic.Bool
}

// Open opens the checkpoint in a model directory: [SingleFile], or, if there is none, the shards that [IndexFile]
// names. It checks the files' headers completely but reads no elements. The caller must call Close.
func Open(dir string) (*Checkpoint, error) {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, problem(dir, "no such directory: give one that holds %s", SingleFile).because(fs.ErrNotExist)
	case err != nil:
		return nil, pathProblem(dir, err)
	case !info.IsDir():
		return nil, problem(dir, "is a file: give the directory that holds %s", SingleFile)
	}
	return open(directory{os.DirFS(dir), dir})
}

// OpenFS is Open for the root directory of a file system whose files implement [io.ReaderAt], as those of an [embed.FS]
// do.
func OpenFS(fsys fs.FS) (*Checkpoint, error) { return open(directory{fsys, ""}) }

// OpenFile opens one safetensors file as a checkpoint. It checks the header
// completely but reads no elements. The caller must call Close.
func OpenFile(path string) (*Checkpoint, error) {
	file, err := openFile(path)
	if err != nil {
		return nil, err
	}
	return fromFiles(file)
}

// Generated makes a checkpoint of tensors from other sources, such as NewTensor.
// It returns an error if two have the same name.
func Generated(tensors ...Tensor) (*Checkpoint, error) {
	c := &Checkpoint{Metadata: map[string]string{}, tensors: make(map[string]Tensor, len(tensors))}
	for _, t := range tensors {
		if read := t.read; read != nil {
			t.read = func(dst []float32, off int) error {
				if c.closed.Load() {
					return closedProblem("")
				}
				return read(dst, off)
			}
		}
		if err := c.add(t); err != nil {
			return nil, err
		}
	}
	c.sortNames()
	return c, nil
}

// Tensor returns the tensor with the given name, and whether there is one.
func (c *Checkpoint) Tensor(name string) (Tensor, bool) {
	t, ok := c.tensors[name]
	return t, ok
}

// Names returns the names of all tensors, sorted.
func (c *Checkpoint) Names() []string { return slices.Clone(c.names) }

// All returns all tensors, in the order of their names.
func (c *Checkpoint) All() iter.Seq[Tensor] {
	return func(yield func(Tensor) bool) {
		for _, name := range c.names {
			if !yield(c.tensors[name]) {
				return
			}
		}
	}
}

// Map returns a checkpoint of the same files whose tensors are what f makes of each, such as the tensor under another
// name. It takes the place of c, which must not be used any more. On an error, c stays as it is.
func (c *Checkpoint) Map(f func(Tensor) (Tensor, error)) (*Checkpoint, error) {
	m := &Checkpoint{Metadata: c.Metadata, tensors: make(map[string]Tensor, len(c.tensors)), files: c.files}
	for t := range c.All() {
		mapped, err := f(t)
		if err == nil {
			err = m.add(mapped)
		}
		if err != nil {
			return nil, err
		}
	}
	m.sortNames()
	return m, nil
}

// Close releases the checkpoint's files. Reading any of its tensors afterwards is an error that wraps [fs.ErrClosed].
// Close waits for reads in progress; calling it again does nothing.
func (c *Checkpoint) Close() error {
	c.closed.Store(true)
	var errs []error
	for _, file := range c.files {
		errs = append(errs, file.close())
	}
	return errors.Join(errs...)
}

// add adds a tensor, whose name must be new.
func (c *Checkpoint) add(t Tensor) error {
	if other, ok := c.tensors[t.Name]; ok {
		if other.file == nil || t.file == nil {
			return t.problem("there are two tensors of this name")
		}
		return t.problem("is in %s too: remove one of them", other.file.name)
	}
	c.tensors[t.Name] = t
	return nil
}

func (c *Checkpoint) sortNames() { c.names = slices.Sorted(maps.Keys(c.tensors)) }

// fromFiles makes a checkpoint of all tensors in the given files, and closes the files if it cannot.
func fromFiles(files ...*storage) (_ *Checkpoint, err error) {
	c := &Checkpoint{Metadata: map[string]string{}, tensors: map[string]Tensor{}, files: files}
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	for _, file := range files {
		tensors, metadata, err := readHeader(file)
		if err != nil {
			return nil, err
		}
		for _, t := range tensors {
			if err := c.add(t); err != nil {
				return nil, err
			}
		}
		for key, value := range metadata {
			if _, ok := c.Metadata[key]; !ok {
				c.Metadata[key] = value
			}
		}
	}
	c.sortNames()
	return c, nil
}

// directory is the place of a checkpoint's files.
type directory struct {
	fs.FS
	path string // before the names of files in messages
}

func (d directory) display(name string) string { return filepath.Join(d.path, name) }

func (d directory) open(name string) (*storage, error) { return openFS(d.FS, name, d.display(name)) }

func open(d directory) (*Checkpoint, error) {
	file, err := d.open(SingleFile)
	if err == nil {
		return fromFiles(file)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	index, err := d.open(IndexFile)
	if err == nil {
		defer index.close()
		return openShards(d, index)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return nil, noCheckpoint(d)
}

// noCheckpoint is the error for a directory without either file. It names what the directory has instead.
func noCheckpoint(d directory) error {
	e := problem(d.path, "holds neither %s nor %s", SingleFile, IndexFile).because(fs.ErrNotExist)
	entries, err := fs.ReadDir(d.FS, ".")
	if err != nil {
		return e
	}
	for _, entry := range entries {
		name := entry.Name()
		if name == SingleFile || name == IndexFile {
			return problem(d.display(name),
				"is a link to a file that does not exist: copy or download it again").because(fs.ErrNotExist)
		}
		switch strings.ToLower(filepath.Ext(name)) {
		case ".safetensors":
			e.Problem += fmt.Sprintf(", but %s: if that is the whole model, rename it", quote(name))
			return e
		case ".gguf":
			e.Problem += fmt.Sprintf(", but %s: give that file as the model", quote(name))
			return e
		case ".bin", ".pt", ".pth", ".h5", ".msgpack", ".ckpt", ".onnx":
			e.Problem += fmt.Sprintf(", but %s: convert that, for example by loading it with transformers and calling "+
				"save_pretrained", quote(name))
			return e
		}
	}
	e.Problem += ": give a Hugging Face model directory"
	return e
}
