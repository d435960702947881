package weights

import (
	"archive/zip"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The names that Hugging Face gives a checkpoint's files.
const (
	SingleFile = "model.safetensors"            // all tensors, if they are in one file
	IndexFile  = "model.safetensors.index.json" // which shard holds which tensor, otherwise
)

// sources are the files of a directory that may be its checkpoint: the first that is there counts. The others are what
// transformers, nanoGPT and minGPT write by torch.save.
var sources = []string{SingleFile, IndexFile, "pytorch_model.bin", "pytorch_model.bin.index.json", "ckpt.pt",
	"model.pt"}

// Checkpoint is a set of named tensors. Its methods may be called from several goroutines at once.
type Checkpoint struct {
	// Form is the form of the files if it is [FormTorch] or [FormLLMC], else "".
	Form string

	// Args are numbers and texts of the model that the files hold beside the tensors: nanoGPT's model_args, and the
	// header of llm.c under the same names. nil if there are none.
	Args map[string]any

	// Rest names what the files hold beside the model's tensors and Args, such as an optimizer's state.
	Rest []string

	tensors map[string]Tensor
	files   []*storage
}

// Open opens the checkpoint in a model directory: [SingleFile], or, if there is none, the shards that [IndexFile]
// names, or what torch.save or llm.c wrote. It checks the files' headers completely but reads no elements. The caller
// must call Close.
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

// OpenFile opens one file as a checkpoint, in any of the forms that Open reads. It checks the header completely but
// reads no elements. The caller must call Close.
func OpenFile(path string) (*Checkpoint, error) {
	file, err := openFile(path)
	if err != nil {
		return nil, err
	}
	return fromFiles(file)
}

// Generated makes a checkpoint of tensors from other sources, such as NewTensor.
// It returns an error if two have the same name.
func Generated(tensors ...Tensor) (*Checkpoint, error) { return new(Checkpoint).Map(nil, tensors...) }

// Tensor returns the tensor with the given name, and whether there is one.
func (c *Checkpoint) Tensor(name string) (Tensor, bool) {
	t, ok := c.tensors[name]
	return t, ok
}

// Names returns the names of all tensors, sorted.
func (c *Checkpoint) Names() []string { return slices.Sorted(maps.Keys(c.tensors)) }

// All returns all tensors, in the order of their names.
func (c *Checkpoint) All() iter.Seq[Tensor] {
	return func(yield func(Tensor) bool) {
		for _, name := range c.Names() {
			if !yield(c.tensors[name]) {
				return
			}
		}
	}
}

// Map returns a checkpoint of the same files whose tensors are what f makes of each, such as the tensor under another
// name, and more. It takes the place of c, which must not be used any more. On an error, c stays as it is.
func (c *Checkpoint) Map(f func(Tensor) (Tensor, error), more ...Tensor) (*Checkpoint, error) {
	m := &Checkpoint{Form: c.Form, Args: c.Args, Rest: c.Rest,
		tensors: make(map[string]Tensor, len(c.tensors)), files: c.files}
	for t := range c.All() {
		mapped, err := f(t)
		if err == nil {
			err = m.add(mapped)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, t := range more {
		if err := m.add(t); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// File returns the path of the first file, "" if there is none.
func (c *Checkpoint) File() string {
	if len(c.files) == 0 {
		return ""
	}
	return c.files[0].name
}

// Close releases the checkpoint's files. Reading a tensor in one of them afterwards is an error that wraps
// [fs.ErrClosed]. Close waits for reads in progress; calling it again does nothing.
func (c *Checkpoint) Close() error {
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

// fromFiles makes a checkpoint of all tensors in the given files, and closes the files if it cannot.
func fromFiles(files ...*storage) (_ *Checkpoint, err error) {
	c := &Checkpoint{tensors: map[string]Tensor{}, files: files}
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	for _, file := range files {
		if err := c.readFile(file); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// readFile adds all but the elements of a file, in the form that it has.
func (c *Checkpoint) readFile(s *storage) error {
	prefix := make([]byte, min(s.size, 4))
	if err := s.read(prefix, 0); err != nil {
		return err
	}
	switch {
	case string(prefix) == zipMagic:
		return s.hold(func() error { return (&torchArchive{file: s, entries: map[string]*zip.File{}}).read(c) })
	case isLLMC(prefix):
		return c.readLLMC(s)
	}
	tensors, err := readHeader(s)
	for _, t := range tensors {
		err = cmp.Or(err, c.add(t))
	}
	return err
}

// directory is the place of a checkpoint's files.
type directory struct {
	fs.FS
	path string // before the names of files in messages
}

func (d directory) display(name string) string { return filepath.Join(d.path, name) }

func (d directory) open(name string) (*storage, error) { return openFS(d.FS, name, d.display(name)) }

func open(d directory) (*Checkpoint, error) {
	for _, name := range sources {
		file, err := d.open(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, err
		case strings.HasSuffix(name, ".json"):
			defer file.close()
			return openShards(d, file)
		}
		return fromFiles(file)
	}
	entries, err := fs.ReadDir(d.FS, ".")
	if err != nil {
		return nil, pathProblem(d.path, err)
	}
	var models []string // of llm.c, under any name
	for _, entry := range entries {
		if name := entry.Name(); filepath.Ext(name) == ".bin" && isLLMC(d.prefix(name)) {
			models = append(models, name)
		}
	}
	switch len(models) {
	case 0:
		return nil, noCheckpoint(d, entries)
	case 1:
		file, err := d.open(models[0])
		if err != nil {
			return nil, err
		}
		return fromFiles(file)
	}
	return nil, problem(d.path, "holds %d models of llm.c (%s): give one of these files as the model", len(models),
		strings.Join(models, ", "))
}

// prefix returns the first bytes of a file, as far as it can be read.
func (d directory) prefix(name string) []byte {
	s, err := d.open(name)
	if err != nil {
		return nil
	}
	defer s.close()
	b := make([]byte, min(s.size, 64))
	if s.read(b, 0) != nil {
		return nil
	}
	return b
}

// noCheckpoint is the error for a directory without a checkpoint. It names what the directory has instead.
func noCheckpoint(d directory, entries []fs.DirEntry) error {
	e := problem(d.path, "holds neither %s nor another checkpoint that is read", SingleFile).because(fs.ErrNotExist)
	for _, entry := range entries {
		if name := entry.Name(); slices.Contains(sources, name) {
			return problem(d.display(name),
				"is a link to a file that does not exist: copy or download it again").because(fs.ErrNotExist)
		}
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return slices.Contains(beside, e.Name()) })
	for _, f := range slices.Concat(foreign, elsewhere) {
		for _, entry := range entries {
			if f.matches(entry.Name()) {
				e.Problem += fmt.Sprintf(", but %s, %s", quote(entry.Name()), f.is)
				return e
			}
		}
	}
	for _, entry := range entries {
		if is := identify(d.prefix(entry.Name())); is != "" && filepath.Ext(entry.Name()) != ".json" {
			e.Problem += fmt.Sprintf(", but %s, which looks like %s", quote(entry.Name()), is)
			return e
		}
	}
	e.Problem += ": give a Hugging Face model directory"
	return e
}
