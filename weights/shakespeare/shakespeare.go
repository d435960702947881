// Package shakespeare is the model that ships with gpt2scope. It was trained on tiny Shakespeare with an exit after
// every layer, so that its first N layers are a working model for N = 1..6. This folder is an ordinary Hugging Face
// GPT-2 directory. Its README.md is the model card; weights/train.py made it.
//
// Importing this package embeds the directory, about 21 MB, in the program.
package shakespeare

import (
	"embed"

	"gpt2scope/gpt2"
	"gpt2scope/weights"
)

// Files is the directory: config.json, model.safetensors and the tokenizer's files.
//
//go:embed *.json merges.txt model.safetensors
var Files embed.FS

// Open opens the model, named "shakespeare". It reads no file. The caller must call Close.
func Open() (*gpt2.Model, error) {
	checkpoint, err := weights.OpenFS(Files)
	if err != nil {
		return nil, err
	}
	return gpt2.NewModel("shakespeare", Files, checkpoint)
}
