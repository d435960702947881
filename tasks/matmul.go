package tasks

import (
	"cmp"
	"fmt"
	"math"

	"gpt2scope/ceilings"
	"gpt2scope/cpu"
	"gpt2scope/cuda"
	"gpt2scope/weights"
)

// matmul is a matrix product, of A (m, k) by rows and B (n, k) by columns, as a linear layer has its weights. C[i,j] is
// the sum over l of A[i,l] B[j,l], in float32.
func matmul() *Task {
	return &Task{
		Name: "matmul", DTypes: []string{Float32, BFloat16}, Sizes: productSizes(),
		Of:    func(n int) Shape { return product(n, n, n) },
		Short: []int{16, 32, 64, 128, 256, 512, 1024},
		Cost: func(s Shape, dtype string) (Cost, error) {
			m, n, k, err := productShape(s)
			if err != nil {
				return Cost{}, err
			}
			in := float64(elementBytes(dtype)) * (m*k + n*k)
			return Cost{FLOPs: 2 * m * n * k, Bytes: in + 4*m*n, In: int64(in), Out: int64(4 * m * n), Steps: 1, Rows: int(m),
				Products: []Product{{int(m), int(n), int(k), 1}}, Multiply: multiplies(dtype)}, nil
		},
		Ways: []Way{
			{Device: CPU, Variant: Tuned, CPU: hostProduct},
			{Device: CPU, Variant: "scalar", DTypes: []string{Float32},
				Most: operations(1 << 27), CPU: scalarProduct},
			{Device: GPU, Variant: Tuned, GPU: linearProduct},
			{Device: GPU, Variant: "naive", DTypes: []string{Float32}, Most: operations(1 << 34),
				GPU: naiveProduct},
		},
		Arrays: &Arrays{
			Layout: func(s Shape, dtype string) ([]Array, Array) {
				m, n, k := s.Get("m"), s.Get("n"), s.Get("k")
				return []Array{{m * k, dtype}, {n * k, dtype}}, Array{m * n, Float32}
			},
			Reference: func(s Shape, in []View, at int) (sum, size float64) {
				n, k := s.Get("n"), s.Get("k")
				i, j := at/n, at%n
				for l := range k {
					p := in[0].At(i*k+l) * in[1].At(j*k+l)
					sum += p
					size += abs(p)
				}
				return sum, size
			},
			Error: func(s Shape, dtype string) float64 {
				if dtype == BFloat16 { // products are exact in float32, but sums on matrix units may be cut off
					return 0x1p-17
				}
				return 0x1p-24 * (4 + math.Sqrt(float64(s.Get("k"))))
			},
		},
	}
}

// multiplies names the rate of products of a type.
func multiplies(dtype string) string {
	if dtype == BFloat16 {
		return ceilings.BF16
	}
	return ceilings.F32
}

func product(m, n, k int) Shape { return Shape{{"m", m}, {"n", n}, {"k", k}} }

// productSizes are squares, and products of some rows with the weights of the shipped model and
// of GPT-2.
func productSizes() []Shape {
	var out []Shape
	for n := 16; n <= 8192; n *= 2 {
		out = append(out, product(n, n, n))
	}
	weights := [][2]int{{1152, 384}, {1536, 384}, {384, 1536}, {2304, 768}, {3072, 768}, {768, 3072}, {50304, 768}}
	for _, w := range weights {
		for _, rows := range []int{1, 4, 16, 64, 256, 1024} {
			out = append(out, product(rows, w[0], w[1]))
		}
	}
	return out
}

// productShape returns the sizes of a shape that has nothing else.
func productShape(s Shape) (m, n, k float64, err error) {
	m, n, k = float64(s.Get("m")), float64(s.Get("n")), float64(s.Get("k"))
	if len(s) != 3 || min(m, n, k) < 1 || max(m, n, k) > 1<<20 {
		return 0, 0, 0, fmt.Errorf("shape %s: expected m=M,n=N,k=K, each from 1 to 2^20", s)
	}
	return m, n, k, nil
}

// operations is of ways that are too slow for more than so many.
func operations(most float64) func(Shape) bool {
	return func(s Shape) bool {
		m, n, k, err := productShape(s)
		return err == nil && 2*m*n*k <= most
	}
}

// hostProduct packs B and multiplies by the engine's products. They take A as float32.
func hostProduct(t *cpu.Team, s Shape, in []View, out View) (run, end func() error, err error) {
	m, n, k := s.Get("m"), s.Get("n"), s.Get("k")
	wide, d := View{Array{m * k, Float32}, in[0].Memory, nil}, weights.F32
	if in[0].DType == BFloat16 {
		if wide.Memory, err = cpu.NewMemory(wide.Bytes()); err != nil {
			return nil, nil, err
		}
		d = weights.BF16
	}
	p, err := t.NewProduct(m, n, k, d, wide.Memory, out.Memory)
	run = func() error {
		if d == weights.BF16 {
			if err := t.Widen(wide.Float32(), in[0].Words()); err != nil {
				return err
			}
		}
		return cmp.Or(p.Pack(in[1].bytes()), p.Run())
	}
	end = func() error {
		if p != nil {
			p.Close()
		}
		if d == weights.BF16 {
			wide.Memory.Free()
		}
		return nil
	}
	if err != nil {
		err = cmp.Or(err, end())
	}
	return run, end, err
}

// scalarProduct multiplies by three loops.
func scalarProduct(_ *cpu.Team, s Shape, in []View, out View) (run, end func() error, err error) {
	m, n, k := s.Get("m"), s.Get("n"), s.Get("k")
	a, b, c := in[0].Float32(), in[1].Float32(), out.Float32()
	return func() error {
		for i := range m {
			x := a[i*k : (i+1)*k]
			for j := range n {
				sum, y := float32(0), b[j*k:(j+1)*k]
				for l := range x {
					sum += x[l] * y[l]
				}
				c[i*n+j] = sum
			}
		}
		return nil
	}, nil, nil
}

// linearProduct multiplies by the library's linear, that of the model's layers, with the kernel that it chooses.
func linearProduct(g *GPUDevice, s Shape, in []cuda.Ptr, out cuda.Ptr, dtype string) (Launch, func() error, error) {
	m, n, k := int32(s.Get("m")), int32(s.Get("n")), int32(s.Get("k"))
	a := cuda.LinearArgs{X: in[0], W: in[1], Y: out, M: m, N: n, K: k, LDX: k, LDY: n, DType: cuda.F32, YType: cuda.F32}
	if dtype == BFloat16 {
		a.DType = cuda.BF16
	}
	if blas, err := g.slot.work.NeedsBLAS(a); err != nil {
		return nil, nil, err
	} else if blas {
		if err := g.Device.Library().OpenBLAS(); err != nil {
			return nil, nil, err
		}
	}
	return func(s *cuda.Stream) error { return s.Linear(a) }, nil, nil
}

// naiveProduct has a thread for each element, in blocks of 16 x 16.
func naiveProduct(g *GPUDevice, s Shape, in []cuda.Ptr, out cuda.Ptr, _ string) (Launch, func() error, error) {
	f, err := g.Function("product_naive")
	l := cuda.Launch{Grid: cuda.Dim{X: (s.Get("n") + 15) / 16, Y: (s.Get("m") + 15) / 16}, Block: cuda.Dim{X: 16, Y: 16}}
	with := arguments(s, in, out)
	return func(s *cuda.Stream) error { return f.Launch(s, l, with...) }, nil, err
}
