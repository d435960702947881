package weights

import (
	"cmp"
	"encoding/binary"
	"fmt"
)

// FormLLMC is the form of a GPT-2 as llm.c writes it: 256 numbers of 32 bits, then the parameters without their names,
// each of all layers together, and matrices as (outputs, inputs).
// Source: karpathy/llm.c, train_gpt2.py, write_model.
const FormLLMC = "llm.c"

// The files of llm.c by their first number.
const (
	llmcModel     = 20240326
	llmcState     = 20240327
	llmcTokenizer = 20240328
	llmcHeader    = 256 * 4 // bytes
)

// llmcTypes are the types of the parameters, by the version of the file.
var llmcTypes = map[uint32]DType{3: F32, 5: BF16}

func isLLMC(prefix []byte) bool {
	return len(prefix) >= 4 && binary.LittleEndian.Uint32(prefix) == llmcModel
}

// readLLMC reads such a file: the tensors under the names that they have in transformers, and in Args the numbers of
// the header under nanoGPT's names. Rows that pad the vocabulary are left out.
func (c *Checkpoint) readLLMC(s *storage) error {
	c.Form, c.Args = FormLLMC, map[string]any{}
	header := make([]byte, min(s.size, llmcHeader))
	if err := s.read(header, 0); err != nil {
		return err
	}
	if len(header) < llmcHeader {
		return problem(s.name, "is %d bytes long, too short for llm.c's header: copy or download it again", s.size)
	}
	number := func(i int) uint64 { return uint64(binary.LittleEndian.Uint32(header[4*i:])) }
	dtype, ok := llmcTypes[uint32(number(1))]
	if !ok {
		return problem(s.name, "is a model of llm.c in version %d; 3 (float32) and 5 (bfloat16) are read: write it again "+
			"with a current train_gpt2.py", number(1))
	}
	T, V, L, NH, C, Vp := number(2), number(3), number(4), number(5), number(6), number(7)
	if T-1 >= 1<<24 || V-1 >= 1<<24 || L-1 >= 1<<12 || NH-1 >= C || C-1 >= 1<<20 || Vp < V || Vp > 1<<24 {
		return problem(s.name, "the header says T=%d, V=%d, L=%d, NH=%d, C=%d, padded V=%d, which no GPT-2 has: it is "+
			"damaged", T, V, L, NH, C, Vp)
	}
	for i, name := range []string{"block_size", "vocab_size", "n_layer", "n_head", "n_embd"} {
		c.Args[name] = int64(number(2 + i))
	}
	end := int64(llmcHeader)
	var twice error // a name that another file has
	// tensor adds one whose rows, without the padding, are as shape says.
	tensor := func(name string, stored uint64, shape ...uint64) {
		t := Tensor{Name: name, DType: dtype, file: s, begin: end}
		setShape(&t, shape)
		twice = cmp.Or(twice, c.add(t))
		n := stored
		for _, d := range shape[1:] {
			n *= d
		}
		end += int64(n) * int64(dtype.Bits()/8)
	}
	tensor("wte.weight", Vp, V, C)
	tensor("wpe.weight", T, T, C)
	for _, p := range []struct {
		name  string
		shape []uint64
	}{
		{"ln_1.weight", []uint64{C}}, {"ln_1.bias", []uint64{C}},
		{"attn.c_attn.weight", []uint64{3 * C, C}}, {"attn.c_attn.bias", []uint64{3 * C}},
		{"attn.c_proj.weight", []uint64{C, C}}, {"attn.c_proj.bias", []uint64{C}},
		{"ln_2.weight", []uint64{C}}, {"ln_2.bias", []uint64{C}},
		{"mlp.c_fc.weight", []uint64{4 * C, C}}, {"mlp.c_fc.bias", []uint64{4 * C}},
		{"mlp.c_proj.weight", []uint64{C, 4 * C}}, {"mlp.c_proj.bias", []uint64{C}},
	} {
		for l := range L {
			tensor(fmt.Sprintf("h.%d.%s", l, p.name), p.shape[0], p.shape...)
		}
	}
	tensor("ln_f.weight", C, C)
	tensor("ln_f.bias", C, C)
	if end != s.size {
		return problem(s.name, "is %d bytes long, and its header asks for %d: it is truncated or damaged, copy or "+
			"download it again", s.size, end)
	}
	return twice
}

// LLMCTokens reads the tokens of a gpt2_tokenizer.bin of llm.c, by id.
func LLMCTokens(data []byte) (tokens []string, err error) {
	if len(data) < llmcHeader || binary.LittleEndian.Uint32(data) != llmcTokenizer {
		return nil, problem("", "is no tokenizer of llm.c: it does not begin as one")
	}
	n := binary.LittleEndian.Uint32(data[8:])
	data = data[llmcHeader:]
	for range n {
		if len(data) == 0 || len(data) <= int(data[0]) {
			return nil, problem("", "holds %d tokens, and its header says %d: it is truncated", len(tokens), n)
		}
		size := int(data[0])
		tokens, data = append(tokens, string(data[1:1+size])), data[1+size:]
	}
	return tokens, nil
}
