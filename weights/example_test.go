package weights_test

import (
	"context"
	"fmt"
	"io"
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

// What a checkpoint in the wrong format is answered with.
func ExampleFromBytes_wrongFormat() {
	_, err := weights.FromBytes("model.safetensors", []byte("PK\x03\x04\x14\x00\x00\x08\x08\x00archive/data.pkl"))
	fmt.Println(err)
	// Output:
	// model.safetensors: is not a safetensors file but looks like a zip archive, as torch.save writes: convert it, for example by loading it with transformers and calling save_pretrained
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

// Activations for numpy.load, written piece by piece, as a whole or not at all.
func ExampleNewNPYWriter() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	path := filepath.Join(dir, "x.npy")
	err = weights.WriteFile(context.Background(), path, func(w io.Writer) error {
		a, err := weights.NewNPYWriter(w, []int{2, 3}) // (T, C)
		if err != nil {
			return err
		}
		for t := range 2 {
			row := []float32{float32(t), 0.5, -1}
			if err := a.Write(row); err != nil {
				return err
			}
		}
		return a.Close()
	})
	if err != nil {
		log.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(info.Size(), "bytes")
	// Output:
	// 152 bytes
}
