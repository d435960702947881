package weights_test

import (
	"context"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"

	"gpt2scope/weights"
)

// A sharded checkpoint: what it holds, and the elements of one tensor.
func ExampleOpen() {
	c, err := weights.Open("testdata/golden/sharded")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	for t := range c.All() {
		fmt.Println(t.Name, t.DType, t.Shape, t.Bytes(), "bytes")
	}

	t, ok := c.Tensor("ln_f.weight")
	if !ok {
		log.Fatal("no ln_f.weight")
	}
	x := make([]float32, t.Elements())
	if err := t.ReadFloat32(x, 0); err != nil {
		log.Fatal(err)
	}
	fmt.Println(x)
	// Output:
	// ln_f.bias F32 [4] 16 bytes
	// ln_f.weight BF16 [4] 8 bytes
	// wte.weight F32 [3 2] 24 bytes
	// [0 1 2 3]
}

// Random weights that exist only while they are read, written as bfloat16.
func ExampleWrite() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	wte, err := weights.NewTensor("wte.weight", []int{257, 384}, func(dst []float32, off int) error {
		for i := range dst {
			// An element depends on its index alone, not on how reads are split.
			rng := rand.NewPCG(1234, uint64(off+i))
			dst[i] = 0.02 * float32(rand.New(rng).NormFloat64())
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	path := filepath.Join(dir, weights.SingleFile)
	err = weights.Write(context.Background(), path, []weights.Tensor{wte}, weights.WriteOptions{
		DType:    weights.BF16,
		Metadata: map[string]string{"format": "pt"},
	})
	if err != nil {
		log.Fatal(err)
	}

	c, err := weights.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	t, _ := c.Tensor("wte.weight")
	fmt.Println(t.DType, t.Shape, c.Metadata)
	// Output:
	// BF16 [257 384] map[format:pt]
}
