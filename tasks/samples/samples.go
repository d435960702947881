// Package samples has samples of the suite of tasks that were measured on some machines, and the cost model that is
// fitted to them. README.md says how they were made.
package samples

import (
	"bytes"
	"embed"
	"fmt"

	"gpt2scope/predict"
	"gpt2scope/tasks"
)

//go:embed *.csv.gz
var files embed.FS

//go:embed model.json
var model []byte

// Names lists the files.
func Names() ([]string, error) {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// Read returns the samples of all machines.
func Read() ([]tasks.Sample, error) {
	names, err := Names()
	if err != nil {
		return nil, err
	}
	var all []tasks.Sample
	for _, name := range names {
		f, err := files.Open(name)
		if err != nil {
			return nil, err
		}
		samples, err := tasks.ReadAny(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, samples...)
	}
	return all, nil
}

// Model returns the cost model that ships, which is fitted to the samples.
func Model() (*predict.Model, error) { return predict.Read(bytes.NewReader(model)) }
