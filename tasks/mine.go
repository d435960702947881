package tasks

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"gpt2scope/cuda"
)

// Yours is the variant of a reader's kernel.
const Yours = "yours"

// KernelName is the name that a reader's kernel of the task has.
func (t *Task) KernelName() string { return strings.ReplaceAll(t.Name, ".", "_") }

// Launch is how a reader's kernel is launched: a thread for each element of the result, and of a sum for each 16 of its
// input, in blocks of so many threads; those of a product are squares.
func (t *Task) Launch(s Shape, block int) cuda.Launch {
	x, y, per := block, 1, block // threads of a block, and columns that it has
	if s.Get("m") > 0 {
		x = int(math.Sqrt(float64(block)))
		y, per = x, x
	} else if t.Name == "reduce.sum" {
		per = 16 * block
	}
	blocks := func(n, per int) int { return (n + per - 1) / per }
	return cuda.Launch{Grid: cuda.Dim{X: blocks(s.Get("n"), per), Y: blocks(max(1, s.Get("m")), y), Z: 1}, Block: cuda.Dim{X: x, Y: y, Z: 1}}
}

// With returns the task with one more way, a reader's kernel, which NVRTC compiles. found is called with the kernel.
func (t *Task) With(file, source string, block int, found func(*cuda.Function) error) *Task {
	with := *t
	with.Ways = append(slices.Clone(t.Ways), Way{Device: GPU, Variant: Yours, DTypes: []string{Float32},
		GPU: func(g *GPUDevice, s Shape, in []cuda.Ptr, out cuda.Ptr, _ string) (launch Launch, end func() error, err error) {
			module, err := g.Device.Compile(file, source)
			if err != nil {
				return nil, nil, err
			}
			end = module.Free
			kernel, err := module.Function(t.KernelName())
			if err == nil {
				err = found(kernel)
			}
			l, first := t.Launch(s, block), out
			var sum *cuda.Function
			if t.Name == "reduce.sum" && err == nil { // the kernel gives a sum for each block
				var partial *cuda.Buffer
				if sum, err = g.Function("sum_final"); err == nil {
					partial, err = g.Device.Alloc(int64(4 * l.Grid.X))
				}
				if partial != nil {
					first, end = partial.Ptr(), func() error { return errors.Join(partial.Free(), module.Free()) }
				}
			}
			with := arguments(s, in, first)
			return func(stream *cuda.Stream) error {
				err := kernel.Launch(stream, l, with...)
				if err == nil && sum != nil {
					err = sum.Launch(stream, cuda.Launch{Block: cuda.Dim{X: 1024}}, out, first, int64(l.Grid.X))
				}
				return err
			}, end, err
		}})
	return &with
}

// templates are the parameters of kernels, what they compute, and how.
var templates = map[string][3]string{
	"vector.add": {"float *z, const float *x, const float *y, long long n", "z[i] = x[i] + y[i] for i from 0 to n - 1, one thread for each i.",
		"  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n  if (i < n) z[i] = x[i] + y[i];\n"},
	"vector.square": {"float *z, const float *x, long long n", "z[i] = x[i] * x[i] for i from 0 to n - 1, one thread for each i.",
		"  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n  if (i < n) z[i] = x[i] * x[i];\n"},
	"reduce.sum": {"float *partial, const float *x, long long n",
		"partial[b] = the sum of what block b reads of x, any part, as long as all blocks read all of x once.",
		"  __shared__ float sums[1024];\n  float sum = 0;\n" +
			"  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (long long)blockDim.x) sum += x[i];\n" +
			"  sums[threadIdx.x] = sum;\n  for (int half = blockDim.x / 2; half > 0; half /= 2) {\n    __syncthreads();\n" +
			"    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];\n  }\n" +
			"  if (threadIdx.x == 0) partial[blockIdx.x] = sums[0];\n"},
	"matmul": {"float *c, const float *a, const float *b, int M, int N, int K",
		"c[i][j] = the sum over l of a[i][l] b[j][l], for (M, K) a, (N, K) b, (M, N) c: one thread for each c.",
		"  const int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;\n" +
			"  if (i >= M || j >= N) return;\n  float sum = 0;\n  for (int l = 0; l < K; l++) sum += a[i * (long long)K + l] * b[j * (long long)K + l];\n" +
			"  c[i * (long long)N + j] = sum;\n"},
}

// Template is a file for a reader to begin with: a kernel that is right, and plain.
func (t *Task) Template() string {
	of := templates[t.Name]
	return fmt.Sprintf("// %s: %s\n// 'infer learn FILE' checks and times it. Keep the name and the parameters.\nextern \"C\" __global__ void %s(%s) {\n%s}\n",
		t.Name, of[1], t.KernelName(), of[0], of[2])
}
