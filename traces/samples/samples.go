// Package samples holds recordings that are in the program; README.md says how they were made.
package samples

import (
	"embed"
	"fmt"
	"strings"
)

// Prefix stands before the name of a sample where the path of a file may stand.
const Prefix = "sample:"

// Sample is a recording, or the counters of one.
type Sample struct {
	Name string `json:"name"` // as sample:NAME in place of a file
	Says string `json:"says"` // what it is of
	Try  string `json:"try"`  // what it is good for: a command, after 'infer trace'
	file string
}

//go:embed eager.sqlite graph.sqlite shipped-eager-cupti.json.gz shipped-graph-stamps.json.gz
//go:embed gpt2-L12-eager-cupti.json.gz gpt2-L12-graph-cupti.json.gz gpt2-L12-graph-stamps.json.gz
//go:embed gpt2-L12-graph-stamps-after.json.gz gpt2-L12-persistent-stamps.json.gz
//go:embed pytorch/bad.sqlite pytorch/steady.sqlite pytorch/steady.ncu-details.csv pytorch/metrics.sqlite
//go:embed pytorch/whole.sqlite pytorch/two.sqlite pytorch/unaligned.sqlite pytorch/kineto.json.gz pytorch/square.json.gz
//go:embed stages/hf-sdpa-bf16-L12-generate.json.gz
var files embed.FS

var all = []Sample{
	{"bad", "PyTorch with faults: pageable copies, waits in each pass", "advise sample:bad", "pytorch/bad.sqlite"},
	{"steady", "PyTorch, three passes of two layers after a warm-up", "show sample:steady --by kernel", "pytorch/steady.sqlite"},
	{"counters", "what ncu counted in the kernels of sample:steady", "kpi sample:steady --counters sample:counters", "pytorch/steady.ncu-details.csv"},
	{"metrics", "sample:steady with the GPU's counters, 10,000 a second", "kpi sample:metrics", "pytorch/metrics.sqlite"},
	{"whole", "PyTorch from its start: the first passes are slow", "report sample:whole -o page.html", "pytorch/whole.sqlite"},
	{"two", "two processes of PyTorch share a GPU", "show sample:two --by process", "pytorch/two.sqlite"},
	{"unaligned", "a vocabulary of 50257, whose product is slow", "show sample:unaligned --by kernel", "pytorch/unaligned.sqlite"},
	{"kineto", "PyTorch's own profiler, with the shapes of inputs", "show sample:kineto --by op", "pytorch/kineto.json.gz"},
	{"square", "PyTorch: square, mul and pow on a GPU, cold and warm", "show sample:square --by op", "pytorch/square.json.gz"},
	{"generate", "transformers write text: no ranges, only kernels", "stages sample:generate", "stages/hf-sdpa-bf16-L12-generate.json.gz"},
	{"eager", "infer by nsys: each kernel is launched by a call", "show sample:eager --by op", "eager.sqlite"},
	{"graph", "the same run with CUDA graphs", "diff sample:eager sample:graph", "graph.sqlite"},
	{"shipped-eager", "infer by CUPTI: kernels, calls and ranges of 32 tokens", "report sample:shipped-eager -o page.html", "shipped-eager-cupti.json.gz"},
	{"shipped-graph", "the same with CUDA graphs, by stamps of the GPU", "show sample:shipped-graph", "shipped-graph-stamps.json.gz"},
	{"gpt2-eager", "GPT-2 of 12 layers by CUPTI, launched one by one", "advise sample:gpt2-eager", "gpt2-L12-eager-cupti.json.gz"},
	{"gpt2-graph", "the same with CUDA graphs", "kpi sample:gpt2-graph", "gpt2-L12-graph-cupti.json.gz"},
	{"gpt2-before", "the same by stamps", "show sample:gpt2-before --by layer", "gpt2-L12-graph-stamps.json.gz"},
	{"gpt2-after", "the same after its sampling kernel was made faster", "diff sample:gpt2-before sample:gpt2-after", "gpt2-L12-graph-stamps-after.json.gz"},
	{"persistent", "GPT-2 in one kernel: what SMs do and wait for inside", "show sample:persistent", "gpt2-L12-persistent-stamps.json.gz"},
}

// All returns the samples, those to begin with first.
func All() []Sample { return append([]Sample(nil), all...) }

// Find returns what a path such as sample:bad names. It is nil without an error if the path names no sample.
func Find(path string) ([]byte, error) {
	name, ok := strings.CutPrefix(path, Prefix)
	if !ok {
		return nil, nil
	}
	for _, s := range all {
		if s.Name == name {
			return files.ReadFile(s.file)
		}
	}
	return nil, fmt.Errorf("there is no %s; 'infer trace samples' lists all", path)
}
