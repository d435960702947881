package exec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"sync"

	"gpt2scope/cuda"
	"gpt2scope/gpt2"
	"gpt2scope/internal/files"
	"gpt2scope/nvtx"
	"gpt2scope/nvtx/annotate"
	"gpt2scope/weights"
)

// algorithmStore keeps tuned algorithms of cuBLASLt on disk, by device, driver, library
// version and shape.
type algorithmStore struct {
	path string

	mu         sync.Mutex
	algorithms map[string]cuda.LinearAlgorithm
}

// algorithmFile is the format of the file.
type algorithmFile struct {
	Version    int                             `json:"version"`
	Algorithms map[string]cuda.LinearAlgorithm `json:"algorithms,omitempty"`
}

const algorithmFileVersion = 2

// openAlgorithms reads the file if there is one. Without a cache folder nothing is
// stored.
func openAlgorithms(path string) (*algorithmStore, error) {
	if path == "" {
		if dir, err := os.UserCacheDir(); err == nil {
			path = filepath.Join(dir, "gpt2scope", "cublaslt.json")
		}
	}
	s := &algorithmStore{path: path, algorithms: map[string]cuda.LinearAlgorithm{}}
	data, err := files.Read(path, 64<<20)
	switch {
	case path == "" || errors.Is(err, os.ErrNotExist):
		return s, nil
	case err != nil:
		return nil, fmt.Errorf("the file of tuned algorithms cannot be read: %w", err)
	}
	var f algorithmFile
	if err := json.Unmarshal(data, &f); err != nil || f.Version != algorithmFileVersion {
		return nil, fmt.Errorf("%s is not a file of tuned algorithms that this version reads; remove it, and tune again", path)
	}
	maps.Copy(s.algorithms, f.Algorithms)
	return s, nil
}

func (s *algorithmStore) find(key string) (cuda.LinearAlgorithm, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.algorithms[key]
	return a, ok
}

// keep stores an algorithm, on disk too.
func (s *algorithmStore) keep(key string, a cuda.LinearAlgorithm) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.algorithms[key] = a
	if s.path == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(s.path), 0o755); err != nil {
		return fmt.Errorf("tuned algorithms cannot be stored: %w", err)
	}
	return weights.WriteFile(context.Background(), s.path, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", " ")
		return e.Encode(algorithmFile{Version: algorithmFileVersion, Algorithms: s.algorithms})
	})
}

// productKey names a product: where it runs, and its shape.
func (b *Backend) productKey(a cuda.LinearArgs) (string, error) {
	info := b.dev.Info()
	driver, _, err := b.lib.Versions()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s, driver %d, cuBLASLt %d, M=%d N=%d K=%d ldx=%d ldy=%d %s->%s act=%d accumulate=%d bias=%t",
		info.Name, driver, b.lib.BLASVersion(), a.M, a.N, a.K, a.LDX, a.LDY, typeName(a.DType), typeName(a.YType), a.Act, a.Accumulate, a.Bias != 0), nil
}

func typeName(t cuda.DType) string { return [...]string{"f32", "bf16", "f16"}[t] }

// tuneCandidates is how many algorithms are timed.
const tuneCandidates = 64

// chooseAlgorithm makes a stream keep an algorithm for a product of a step, before the
// product is first launched: the stored one, the fastest if tune is set, or the
// heuristic's first. cuBLASLt is open.
func (b *Backend) chooseAlgorithm(s *cuda.Stream, step string, a cuda.LinearArgs, tune bool) (gpt2.Product, error) {
	key, err := b.productKey(a)
	if err != nil {
		return gpt2.Product{}, err
	}
	stored, ok := b.algorithms.find(key)
	if ok {
		if err := s.SetLinearAlgorithm(a, stored); err != nil {
			b.notice("the tuned algorithm of " + step + " is refused, so the library chooses: " + err.Error())
			ok = false
		}
	}
	if !ok && tune {
		defer annotate.Range("tune "+step, nvtx.Red)()
		tuned, err := s.TuneLinear(a, tuneCandidates)
		if err != nil {
			return gpt2.Product{}, err
		}
		if err := b.algorithms.keep(key, tuned); err != nil {
			return gpt2.Product{}, err
		}
	}
	chosen, err := s.LinearAlgorithm(a)
	if err != nil {
		return gpt2.Product{}, err
	}
	return gpt2.Product{Step: step, M: int(a.M), N: int(a.N), K: int(a.K), Tuned: chosen.Candidates > 0, Algorithm: chosen.Text}, nil
}
