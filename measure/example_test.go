package measure_test

import (
	"context"
	"fmt"
	"log"

	"gpt2scope/cpu"
	"gpt2scope/gpt2"
	"gpt2scope/measure"
)

// A decode step with 64 tokens in the cache, of a small model of random weights.
func Example() {
	ctx := context.Background()
	model, err := gpt2.Random("random:L=2,C=64,NH=4,V=257,T=128")
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	backend, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()
	session, err := gpt2.NewSession(ctx, model, backend, gpt2.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()

	step := gpt2.Pass{Batch: 1, Tokens: 1, Logits: gpt2.LogitsLast, Sample: true}
	times, err := measure.Pass(ctx, session, step, 64, 20)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(times.All), "passes, the median between p10 and p90:", times.P10 <= times.Median && times.Median <= times.P90)
	// Output: 20 passes, the median between p10 and p90: true
}
