// Package shakespeare holds the checkpoint that ships with gpt2scope: an ordinary
// Hugging Face GPT-2 directory, trained on tiny Shakespeare with an exit after
// every layer, so that its first N layers are a working model for N = 1..6. Its
// README.md is the model card; weights/train.py made it.
//
// Importing this package embeds the directory, about 21 MB, in the binary; only
// cmd/infer does.
package shakespeare

import "embed"

// Files is the directory: config.json, model.safetensors and the tokenizer's
// files.
//
//go:embed *.json merges.txt model.safetensors
var Files embed.FS
