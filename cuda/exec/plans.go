package exec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"gpt2scope/cuda"
	"gpt2scope/nvtx"
	"gpt2scope/nvtx/annotate"
	"gpt2scope/weights"
)

// planStore keeps the products that were tuned, on disk: for each device, driver,
// library version and shape the algorithm that was the fastest.
type planStore struct {
	path string

	mu    sync.Mutex
	plans map[string]storedPlan
}

// storedPlan is an algorithm of cuBLASLt, opaque but for the text.
type storedPlan struct {
	Algorithm    [8]uint64 `json:"algorithm"`
	Workspace    uint64    `json:"workspace"`
	Candidates   int32     `json:"candidates"`
	Microseconds float32   `json:"microseconds"`
	Text         string    `json:"text"`
}

// planFile is the format of the file.
type planFile struct {
	Version int                   `json:"version"`
	Plans   map[string]storedPlan `json:"plans"`
}

const planFileVersion = 1

// openPlanStore reads the file where there is one. Without a cache folder nothing
// is stored.
func openPlanStore(path string) (*planStore, error) {
	if path == "" {
		if dir, err := os.UserCacheDir(); err == nil {
			path = filepath.Join(dir, "gpt2scope", "cublaslt.json")
		}
	}
	s := &planStore{path: path, plans: map[string]storedPlan{}}
	data, err := os.ReadFile(path)
	switch {
	case path == "" || errors.Is(err, os.ErrNotExist):
		return s, nil
	case err != nil:
		return nil, fmt.Errorf("the file of tuned products cannot be read: %w", err)
	}
	var f planFile
	if err := json.Unmarshal(data, &f); err != nil || f.Version != planFileVersion {
		return nil, fmt.Errorf("%s is not a file of tuned products that this version reads; remove it, and tune again", path)
	}
	if f.Plans != nil {
		s.plans = f.Plans
	}
	return s, nil
}

func (s *planStore) find(key string) (storedPlan, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.plans[key]
	return p, ok
}

// keep stores a plan, on disk too.
func (s *planStore) keep(key string, p storedPlan) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plans[key] = p
	if s.path == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(s.path), 0o755); err != nil {
		return fmt.Errorf("tuned products cannot be stored: %w", err)
	}
	return weights.WriteFile(context.Background(), s.path, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", " ")
		return e.Encode(planFile{planFileVersion, s.plans})
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

// keepPlan makes the library keep a plan for a product, before it is first launched:
// the stored one, one found by tuning, or the heuristic's first.
func (r *Runner) keepPlan(step string, a cuda.LinearArgs) error {
	b := r.backend
	if err := b.lib.OpenBLAS(); err != nil {
		return err
	}
	key, err := b.productKey(a)
	if err != nil {
		return err
	}
	stored, ok := b.plans.find(key)
	if ok {
		err := r.stream.SetLinearPlan(a, cuda.LinearPlan{Algorithm: stored.Algorithm, Workspace: stored.Workspace, Candidates: stored.Candidates, Microseconds: stored.Microseconds, Text: stored.Text})
		if err != nil {
			b.notice("the tuned algorithm of " + step + " is refused, so the library chooses: " + err.Error())
			ok = false
		}
	}
	if !ok && b.options.Tune && !r.survey {
		defer annotate.Range("tune "+step, nvtx.Red)()
		p, err := r.stream.TuneLinear(a, tuneCandidates)
		if err != nil {
			return err
		}
		if err := b.plans.keep(key, storedPlan{p.Algorithm, p.Workspace, p.Candidates, p.Microseconds, p.Text}); err != nil {
			return err
		}
	}
	p, err := r.stream.LinearPlan(a)
	if err != nil {
		return err
	}
	r.products = append(r.products, Product{Step: step, M: int(a.M), N: int(a.N), K: int(a.K), Tuned: p.Candidates > 0, Text: p.Text})
	return nil
}

// Product is a matrix product done by cuBLASLt, and the algorithm chosen for it.
type Product struct {
	Step    string // of the plan
	M, N, K int
	Tuned   bool   // by timing, now or earlier; else by cuBLASLt's heuristic
	Text    string // algorithm, tile, stages, split-K
}

// Products returns the products of the passes compiled so far.
func (r *Runner) Products() []Product { return r.products }
