package weights

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"gpt2scope/internal/require"
)

// torchFile packs files as torch.save does, by names without the folder.
func torchFile(t testing.TB, method uint16, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, data := range files {
		w, err := z.CreateHeader(&zip.FileHeader{Name: "archive/" + name, Method: method})
		if err == nil {
			_, err = w.Write([]byte(data))
		}
		must(t, err)
	}
	must(t, z.Close())
	return b.Bytes()
}

// Parts of pickles, as Python writes them in protocol 2.
func str(s string) string {
	return "X" + string(binary.LittleEndian.AppendUint32(nil, uint32(len(s)))) + s
}
func global(module, name string) string { return "c" + module + "\n" + name + "\n" }

// tensorOps makes a tensor of FloatStorage 0 of n elements, from an offset on.
func tensorOps(offset byte, size, stride string) string {
	return global("torch._utils", "_rebuild_tensor_v2") + "((" + str("storage") + global("torch", "FloatStorage") + str("0") +
		str("cpu") + "K\x06tQK" + string([]byte{offset}) + "(" + size + "t(" + stride + "t\x89" +
		global("collections", "OrderedDict") + ")RtR"
}

// stateOf makes a dictionary of one tensor.
func stateOf(tensor string) string { return "\x80\x02}" + str("w") + tensor + "s." }

// elements are the bytes of 0, 1, 2, ...
func elements(n int) string {
	b := make([]byte, 4*n)
	for i := range n {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(float32(i)))
	}
	return string(b)
}

func TestTorch(t *testing.T) {
	good := stateOf(tensorOps(0, "K\x02K\x03", "K\x03K\x01"))
	for name, test := range map[string]struct {
		pickle string
		shape  []int
		want   []float32 // or
		words  []string  // of the error
	}{
		"rows":        {good, []int{2, 3}, []float32{0, 1, 2, 3, 4, 5}, nil},
		"columns":     {stateOf(tensorOps(0, "K\x02K\x03", "K\x01K\x02")), []int{2, 3}, []float32{0, 2, 4, 1, 3, 5}, nil},
		"offset":      {stateOf(tensorOps(4, "K\x02", "K\x01")), []int{2}, []float32{4, 5}, nil},
		"scalar":      {stateOf(tensorOps(5, "", "")), nil, []float32{5}, nil},
		"beyond":      {stateOf(tensorOps(5, "K\x02", "K\x01")), nil, nil, []string{`"w"`, "needs more than the 6"}},
		"expanded":    {stateOf(tensorOps(0, "K\x02K\x03", "K\x00K\x00")), nil, nil, []string{`"w"`, "strides", "contiguous"}},
		"huge":        {stateOf(tensorOps(0, "J\xff\xff\xff\x7fJ\xff\xff\xff\x7fJ\xff\xff\xff\x7f", "K\x01K\x01K\x01")), nil, nil, []string{"too many"}},
		"negative":    {stateOf(tensorOps(0, "J\xff\xff\xff\xff", "K\x01")), nil, nil, []string{`"w"`, "not numbers"}},
		"code":        {"\x80\x02" + global("os", "system") + "(" + str("echo") + "tR.", nil, nil, []string{`"os.system"`, "executed"}},
		"code by 4":   {"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02ls\x85R.", nil, nil, []string{`"os.system"`}},
		"an instance": {"\x80\x02(" + str("a") + "i__main__\nA\n.", nil, nil, []string{"instruction 'i'", "state_dict"}},
		"a class":     {"\x80\x02" + global("__main__", "Config") + ")\x81.", nil, nil, []string{`"__main__.Config"`}},
		"not a call":  {"\x80\x02K\x01)R.", nil, nil, []string{"cannot be called"}},
		"no tensors":  {"\x80\x02}" + str("x") + "K\x01s.", nil, nil, []string{"no tensors by name", "model"}},
		"a list":      {"\x80\x02].", nil, nil, []string{"no dictionary of tensors"}},
		"empty":       {"", nil, nil, []string{"ends within"}},
		"cut":         {good[:len(good)-4], nil, nil, []string{"data.pkl"}},
		"underflow":   {"\x80\x02R.", nil, nil, []string{"takes more values"}},
		"below mark":  {"\x80\x02}(s.", nil, nil, []string{"takes more values"}},
		"no mark":     {"\x80\x02t.", nil, nil, []string{"mark"}},
		"memo":        {"\x80\x02h\x07.", nil, nil, []string{"value 7"}},
		"protocol":    {"\x80\x09.", nil, nil, []string{"protocol 9"}},
		"storage":     {"\x80\x02" + str("persistent") + "Q.", nil, nil, []string{"storage of a known type"}},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := fromBytes("file", torchFile(t, zip.Store, map[string]string{"data.pkl": test.pickle, "data/0": elements(6)}))
			if test.words != nil {
				checkError(t, err, append(test.words, "file")...)
				return
			}
			must(t, err)
			w, _ := c.Tensor("w")
			got := make([]float32, w.Elements())
			if err := w.ReadFloat32(got, 0); err != nil || shapeString(w.Shape) != shapeString(test.shape) || len(got) != len(test.want) {
				t.Fatalf("%v %v, %v", w.Shape, got, err)
			}
			for i := range got {
				if got[i] != test.want[i] {
					t.Errorf("%v, want %v", got, test.want)
				}
			}
		})
	}
	for name, test := range map[string]struct {
		method uint16
		files  map[string]string
		word   string
	}{
		"compressed":  {zip.Deflate, map[string]string{"data.pkl": good, "data/0": elements(6)}, "zip -0"},
		"no pickle":   {zip.Store, map[string]string{"data/0": ""}, "data.pkl"},
		"no storage":  {zip.Store, map[string]string{"data.pkl": good}, `lacks "data/0"`},
		"TorchScript": {zip.Store, map[string]string{"data.pkl": good, "constants.pkl": ""}, "TorchScript"},
		"big-endian":  {zip.Store, map[string]string{"data.pkl": good, "byteorder": "big", "data/0": elements(6)}, "big-endian"},
	} {
		_, err := fromBytes("file", torchFile(t, test.method, test.files))
		checkError(t, err, test.word)
		if err != nil && !strings.Contains(err.Error(), "file") {
			t.Errorf("%s: %v", name, err)
		}
	}
	whole := torchFile(t, zip.Store, map[string]string{"data.pkl": good, "data/0": elements(6)})
	_, err := fromBytes("file", whole[:len(whole)/2])
	checkError(t, err, "truncated")
}

// FuzzTorch: no pickle makes the reader panic or execute anything; the tensors of what it accepts can be read.
func FuzzTorch(f *testing.F) {
	paths, _ := filepath.Glob("../gpt2/testdata/models/form-*/*.bin")
	more, _ := filepath.Glob("../gpt2/testdata/models/form-*/*.pt")
	for _, path := range append(paths, more...) {
		data := text(f, path)
		z, err := zip.NewReader(strings.NewReader(data), int64(len(data)))
		if err != nil {
			continue // llm.c's
		}
		for _, file := range z.File {
			if filepath.Base(file.Name) == "data.pkl" {
				r := require.Value(file.Open())(f)
				var b bytes.Buffer
				if _, err := b.ReadFrom(r); err != nil {
					f.Fatal(err)
				}
				f.Add(b.Bytes(), []byte(elements(400)))
			}
		}
	}
	f.Add([]byte(stateOf(tensorOps(0, "K\x02K\x03", "K\x01K\x02"))), []byte(elements(6)))
	f.Add([]byte("\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x04itos\x94}\x94(K\x00\x8c\x01\n\x94uu."), []byte{})
	f.Fuzz(func(t *testing.T, pickle, data []byte) {
		c, err := fromBytes("file", torchFile(t, zip.Store, map[string]string{"data.pkl": string(pickle), "data/0": string(data)}))
		checkAnswer(t, c, err)
		if err != nil {
			return
		}
		for x := range c.All() {
			if x.Elements() > 1<<20 && x.Bytes() > int64(len(data)) {
				t.Fatalf("%q has %d elements in %d bytes", x.Name, x.Elements(), len(data))
			}
			if x.DType.IsFloat() {
				if err := x.ReadFloat32(make([]float32, x.Elements()), 0); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// llmcFile makes a model of llm.c: T=2, V=3 of 4 rows, L=1, NH=1, C=2, whose elements count up.
func llmcFile(edit func(header []uint32)) []byte {
	header := make([]uint32, 256)
	copy(header, []uint32{llmcModel, 3, 2, 3, 1, 1, 2, 4})
	if edit != nil {
		edit(header)
	}
	var b []byte
	for _, x := range header {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return append(b, elements(8+4+4*2+12+6+4+2+16+8+16+2+4)...)
}

func TestLLMC(t *testing.T) {
	c, err := fromBytes("file", llmcFile(nil))
	must(t, err)
	for name, want := range map[string]struct {
		shape []int
		first float32
	}{
		"wte.weight": {[]int{3, 2}, 0}, "wpe.weight": {[]int{2, 2}, 8}, "h.0.attn.c_attn.weight": {[]int{6, 2}, 16},
		"h.0.attn.c_attn.bias": {[]int{6}, 28}, "h.0.mlp.c_proj.weight": {[]int{2, 8}, 68}, "ln_f.bias": {[]int{2}, 88},
	} {
		x, _ := c.Tensor(name)
		got := make([]float32, 1)
		if err := x.ReadFloat32(got, 0); err != nil || shapeString(x.Shape) != shapeString(want.shape) || got[0] != want.first {
			t.Errorf("%s: %v %v, %v; want %v", name, x.Shape, got, err, want)
		}
	}
	if c.Form != FormLLMC || c.Args["n_head"] != int64(1) || len(c.Names()) != 16 {
		t.Errorf("%s %v %q", c.Form, c.Args, c.Names())
	}
	for word, edit := range map[string]func(h []uint32){
		"version 4": func(h []uint32) { h[1] = 4 }, "NH=0": func(h []uint32) { h[5] = 0 }, "L=0": func(h []uint32) { h[4] = 0 },
		"C=4294967295": func(h []uint32) { h[6] = 1<<32 - 1 }, "padded V=2": func(h []uint32) { h[7] = 2 },
		"its header asks for": func(h []uint32) { h[4] = 4000 }, "debug state": func(h []uint32) { h[0] = llmcState },
		"llm.c's tokenizer": func(h []uint32) { h[0] = llmcTokenizer },
	} {
		_, err := fromBytes("file", llmcFile(edit))
		checkError(t, err, "file", word)
	}
	_, err = fromBytes("file", llmcFile(nil)[:500])
	checkError(t, err, "too short")
}

// TestForeign: what lies in a checkpoint's place is named, with what to do, in a directory and as a file.
func TestForeign(t *testing.T) {
	for name, test := range map[string]struct{ data, words string }{
		"model.ckpt.index":          {"\x00\x00", "TensorFlow|convert_gpt2_original_tf_checkpoint_to_pytorch"},
		"checkpoint":                {`model_checkpoint_path: "model.ckpt"`, "TensorFlow"},
		"tf_model.h5":               {"\x89HDF\r\n\x1a\n", "from_tf=True"},
		"flax_model.msgpack":        {"\x81\xab", "from_flax=True"},
		"ggml-model-f16.bin":        {"lmgg\x51\xc4\x00\x00", "ggml|openai-community/gpt2"},
		"model.bin":                 {"\x06\x00\x00\x00\x08\x00GPT2Spec", "CTranslate2|nothing converts back"},
		"decoder_model.onnx":        {"\x08\x07\x12\x07pytorch", "ONNX|exported"},
		"rust_model.ot":             {"\x00", "rust-bert|pytorch_model.bin"},
		"adapter_model.safetensors": {"", "LoRA|--lora"},
		"gpt2_124M_debug_state.bin": {"\xc7\xd7\x34\x01", "llm.c's debug state"},
		"old.bin":                   {"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.", "pickle|1.6"},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		for _, other := range []string{"training_args.bin", "optimizer.pt"} {
			put(t, filepath.Join(dir, other), zipMagic)
		}
		put(t, path, test.data)
		_, err := Open(dir)
		checkError(t, err, append(strings.Split(test.words, "|"), name, "holds neither")...)
		if test.data != "" {
			_, err = OpenFile(path)
			checkError(t, err, append(strings.Split(test.words, "|"), name)...)
		}
	}
}
