// Package samples has samples of the suite of tasks that were measured on some machines, and the cost model that is
// fitted to them. README.md says how they were made.
package samples

import (
	"bytes"
	"compress/gzip"
	"embed"
	"fmt"

	"gpt2scope/predict"
	"gpt2scope/tasks"
)

//go:embed *.csv.gz
var files embed.FS

//go:embed model.json.gz
var model []byte

// Read returns the samples of all machines.
func Read() ([]tasks.Sample, error) {
	var all []tasks.Sample
	entries, _ := files.ReadDir(".") // they are in the program
	for _, e := range entries {
		data, _ := files.ReadFile(e.Name())
		samples, err := tasks.ReadAny(bytes.NewReader(data))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name(), err)
		}
		all = append(all, samples...)
	}
	return all, nil
}

// H200 returns the samples of an NVIDIA H200 and its CPU.
func H200() ([]tasks.Sample, error) {
	data, err := files.ReadFile("h200.csv.gz")
	if err != nil {
		return nil, err
	}
	return tasks.ReadAny(bytes.NewReader(data))
}

// Model returns the cost model that ships, which is fitted to the samples.
func Model() (*predict.Model, error) {
	z, err := gzip.NewReader(bytes.NewReader(model))
	if err != nil {
		return nil, err
	}
	return predict.Read(z)
}
