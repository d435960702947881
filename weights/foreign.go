package weights

import (
	"bytes"
	"encoding/binary"
	"path"
	"strings"
)

// What to do about files that are not read. transformers 5 reads safetensors and pytorch_model.bin only, and no version
// reads the files of ggml, CTranslate2 and ONNX.
const (
	zipMagic = "PK\x03\x04"

	tensorFlow = "a checkpoint of TensorFlow, as OpenAI published GPT-2: convert it with transformers 4, which writes a " +
		"directory that is read here: python -m transformers.models.gpt2.convert_gpt2_original_tf_checkpoint_to_pytorch " +
		"--gpt2_checkpoint_path DIR/model.ckpt --pytorch_dump_folder_path OUT (and --gpt2_config_file if it is not 124M)"
	keras = "the weights of Keras: convert them with transformers 4, GPT2LMHeadModel.from_pretrained(DIR, from_tf=True)" +
		".save_pretrained(OUT)"
	flax = "the weights of Flax: convert them with transformers 4, GPT2LMHeadModel.from_pretrained(DIR, from_flax=True)" +
		".save_pretrained(OUT)"
	ggml = "a ggml file of before GGUF, which nothing converts back: give the checkpoint that it was made from (of " +
		"gpt-2-117M, openai-community/gpt2), or a GGUF file"
	ct2  = "a model of CTranslate2, which nothing converts back: give the checkpoint that it was made from"
	onnx = "a graph of ONNX, which nothing converts back: give the checkpoint that it was exported from"
	rust = "the weights of rust-bert: give the model.safetensors or pytorch_model.bin that they were made from"
	lora = "an adapter (LoRA), which changes another model: give that model as the model, and this directory by --lora"
)

// foreign are the files that are not read, by name, the most telling first.
var foreign = []foreignFile{
	{"adapter_model.*", lora}, {"rust_model.ot", rust},
	{"*.ckpt.index", tensorFlow}, {"*.ckpt.data-*", tensorFlow}, {"*.ckpt.meta", tensorFlow},
	{"tf_model*.h5", keras}, {"flax_model*.msgpack", flax}, {"*.onnx", onnx}, {"onnx", onnx}, {"ggml-*.bin", ggml},
}

// elsewhere are the files and directories that are read if they are given as the model.
var elsewhere = []foreignFile{
	{"*.gguf", "a GGUF file: give that file as the model"},
	{"model-*-of-*.safetensors", "a part of a checkpoint whose model.safetensors.index.json is missing: copy or download " +
		"that too"},
	{"*.safetensors", "a safetensors file of another name: if that is the whole model, give that file as the model"},
	{"pytorch_model-*", "a part of a checkpoint whose pytorch_model.bin.index.json is missing: copy or download that too"},
	{"*.pt", "what torch.save writes: give that file as the model"},
	{"*.pth", "what torch.save writes: give that file as the model"},
	{"checkpoint-*", "a directory of transformers' Trainer: give that as the model"},
}

// beside are the files of training programs that are no models, but look like some.
var beside = []string{"training_args.bin", "optimizer.pt", "scheduler.pt", "scaler.pt", "rng_state.pth", "meta.pkl"}

type foreignFile struct{ pattern, is string }

func (f foreignFile) matches(name string) bool {
	ok, err := path.Match(f.pattern, strings.ToLower(name))
	return ok && err == nil
}

// identify says what kind of file begins with prefix, if that is a kind met in
// a checkpoint's place, and what to do about it.
func identify(prefix []byte) string {
	text := strings.ToLower(string(bytes.TrimSpace(bytes.TrimPrefix(prefix, []byte("\ufeff")))))
	has := func(magic string) bool { return bytes.HasPrefix(prefix, []byte(magic)) }
	first := uint32(0)
	if len(prefix) >= 4 {
		first = binary.LittleEndian.Uint32(prefix)
	}
	switch {
	case has(zipMagic):
		return "a zip archive, as torch.save writes: give that file as the model"
	case len(prefix) > 1 && prefix[0] == 0x80 && prefix[1] >= 2 && prefix[1] <= 5:
		return "a Python pickle, as torch.save wrote before PyTorch 1.6: torch.save(torch.load(FILE), FILE) with a newer " +
			"PyTorch makes the form that is read"
	case has("GGUF"):
		return "a GGUF file, as llama.cpp uses: give the file itself as the model, under a name that ends in .gguf"
	case has("lmgg"), has("tjgg"):
		return ggml
	case len(prefix) > 6 && bytes.HasPrefix(prefix[6:], []byte("GPT2Spec")):
		return ct2
	case len(prefix) > 3 && prefix[0] == 8 && prefix[1] < 32 && prefix[2] == 0x12: // ir_version, producer_name
		return onnx
	case first == llmcModel:
		return "a model of llm.c: give that file as the model"
	case first == llmcState:
		return "llm.c's debug state: give the model beside it, such as gpt2_124M.bin"
	case first == llmcTokenizer:
		return "llm.c's tokenizer: give the model beside it, such as gpt2_124M.bin"
	case has("\x89HDF\r\n"):
		return "an HDF5 file, " + keras
	case has("\x93NUMPY"):
		return "a NumPy array: only whole checkpoints in safetensors files can be read"
	case has("\x1f\x8b"), has("\x28\xb5\x2f\xfd"), has("BZh"), has("\xfd7zXZ"):
		return "a compressed file: decompress it first"
	case strings.HasPrefix(text, "version https://git-lfs"):
		return "a Git LFS pointer, which stands for the real file: run git lfs pull"
	case strings.HasPrefix(text, "model_checkpoint_path"):
		return tensorFlow
	case strings.HasPrefix(text, "<!doctype"), strings.HasPrefix(text, "<html"):
		return "a web page: download the file itself"
	case strings.HasPrefix(text, "{"):
		return "a JSON file: give the directory that holds it, if that is a model's, or the file with the tensors"
	}
	return ""
}
