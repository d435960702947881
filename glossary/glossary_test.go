package glossary

import (
	"os"
	"strings"
	"testing"
)

// Each entry is whole, explains its own names and is found by them, and files of this repository that it names are there.
func TestEntries(t *testing.T) {
	if len(all()) < 150 {
		t.Fatalf("%d entries, expected 150 at least", len(all()))
	}
	seen := map[string]bool{}
	for _, e := range all() {
		if e.Kind == "" || e.Says == "" || strings.HasSuffix(e.Says, ".") || strings.Contains(e.Says+e.From, "|") {
			t.Errorf("the entry is not whole: %+v", e)
		}
		for _, name := range e.Names {
			if seen[e.Kind+name] {
				t.Errorf("%s %q stands twice", e.Kind, name)
			}
			seen[e.Kind+name] = true
			if found := Find(all(), strings.TrimSuffix(name, "*")); len(found) == 0 || e.Kind == Kernel && found[0].Says != e.Says {
				t.Errorf("%q is explained by %+v", name, found)
			}
		}
		for _, word := range strings.FieldsFunc(e.From, func(r rune) bool { return strings.ContainsRune(" ,", r) }) {
			if root, _, ok := strings.Cut(word, "/"); ok && (root == "csrc" || root == "gpt2" || root == "docs") {
				if _, err := os.Stat("../" + word); err != nil {
					t.Errorf("%q: %v", e.Names, err)
				}
			}
		}
	}
}

func TestFind(t *testing.T) {
	for name, want := range map[string]string{
		"fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float, cutlass::arch::Sm80>::Params)": "computes attention without storing",
		"gemmSN_NN": "multiplies matrices of which one is narrow",
		"void at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<float>, ...>": "applies an operation; adds",
		"cudaMemcpyAsync_ptsz": "queues a copy", "cuMemAlloc_v2": "reserves memory", "CUDASTREAMISCAPTURING": "asks whether",
		"waves": "is how often a grid fills", "Roofline": "is the floor", "self": "is the time", "trust": "is whether a recording",
		"dram__throughput.avg.pct_of_peak_sustained_elapsed": "is the traffic", "dram_throughput": "is the traffic",
		"--openmp-tracking=true": "is no option", "aten::_scaled_dot_product_efficient_attention": "attends",
		"Memcpy DtoH (Device -> Pageable)": "copies memory of the GPU", "OOM": "is the error", " nvcc ": "is CUDA's compiler",
		"floor us": "is the least time", "busy us": "is the time in which", "zebra": "",
	} {
		found := Find(all(), name)
		var parts []string
		if want != "" {
			parts = strings.Split(want, "; ")
		}
		ok := len(found) == len(parts)
		for i := range parts {
			ok = ok && strings.HasPrefix(found[i].Says, parts[i])
		}
		if !ok {
			t.Errorf("%s is explained by %+v, expected %q", name, found, want)
		}
	}
	if near := Near(all(), "capturing"); len(near) != 1 || near[0] != "cudaStreamIsCapturing" {
		t.Errorf("near capturing: %q", near)
	}
	if s := Says("sm__throughput", Kernel, Call); s != "" {
		t.Errorf("a metric is explained as a kernel: %s", s)
	}
}
