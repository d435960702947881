package stages

import (
	"strings"

	"gpt2scope/internal/lazyregexp"
)

// class is what the name of a kernel says that it does.
type class uint8

const (
	unknown     class = iota
	product           // a matrix product, also by a vector
	productTail       // sums the parts of a product, or adds its bias
	productHead       // scales or copies what a product adds to
	attention         // fused attention
	softmax
	layerNorm
	gelu // a GELU, or the hyperbolic tangent in one
	power
	embedding // gathers rows
	add       // of two tensors of floating point
	multiply
	copying // a copy, cast or transposition
	casting // to another type, as autocast does before products
	concatenation
	masking
	elementwise // another operation on each element
	sampling
	other    // work on integers, sorting, random numbers: not in a layer
	sampler  // chooses a token, in an engine that has a kernel for it
	backward // of training
	numClasses
)

// kernelName is what the name of a kernel says.
type kernelName struct {
	class class
	norm  bool // it normalises, whatever else it does
	adds  bool // it adds a residual, whatever else it does
	embed bool // it looks up embeddings, whatever else it does

	// What GPT-2 does not have: RMSNorm, rotary embeddings of positions, a gated MLP.
	rms, rotary, gated bool

	again bool // it goes on with the normalisation of the kernel before
	key   string
}

var (
	spaces     = lazyregexp.New(`\s+`)
	lastNumber = lazyregexp.New(`_\d+$`)
)

// isBroadcast reports whether a kernel is ggml's for all operations on two tensors: what it does depends on what is
// before and after it.
func isBroadcast(name string) bool { return strings.Contains(name, "bin_bcast") }

// rule gives the kernels whose names have one of the words, one of those of and, and none of not, a class.
type rule struct {
	class         class
	any, and, not string // separated by spaces; and is empty for all
}

// has reports whether a name has one of the words.
func has(name, words string) bool {
	for w := range strings.FieldsSeq(words) {
		if strings.Contains(name, w) {
			return true
		}
	}
	return false
}

// What is read from other words, as a word.
const norm, gated, rotary = "<norm>", "<gated>", "<rotary>"

// tritonRules are of the kernels that torch.compile makes, whose names list operators between underscores; rules are of
// all others. The first that holds counts.
var (
	tritonRules = []rule{
		{product, "_mm_ _addmm_ _bmm_ _matmul_", "_tem_", ""},
		{layerNorm, norm, "", ""},
		{attention, "_flash_ _attention_", "_tem_", ""},
		{softmax, "_softmax_", "", ""},
		{gelu, "_gelu_ _tanh_ _erf_", "", ""},
		{concatenation, "scaled_dot_product index_copy index_put", "", ""},
		{embedding, lookups, "", "_cumsum_ _eq_ " + rotary},
		{other, "_argmax_ _multinomial_ _sort_ _topk_ _cumsum_ _arange_ _ne_ _eq_", "", ""},
		{concatenation, "_cat_", "", ""},
		{copying, "_clone_ _transpose_ _permute_ _copy_ _split_", "", ""},
		{add, "_add_", "", ""},
		{elementwise, "_", "", ""},
	}
	rules = []rule{
		{backward, "backward _bwd bwd_ _grad adam optimizer multi_tensor global_norm", "", ""},
		{layerNorm, "addbias add_bias", norm, ""},
		{gelu, "biasgelu bias_gelu", "", ""},
		{add, "addbiasresidual add_bias_residual", "", ""},
		{concatenation, "transposeqkv transpose_qkv transposectx store_kvcache reshape_and_cache " + rotary, "", ""},
		{product, "^kernel$ ^kernel2$", "", ""}, // short names of gemvx::kernel and cutlass::Kernel2
		{productTail, "splitkreduce globalkernel split_k_kernel splitk_reduce epilogue::impl reduce_1block addbias", "", ""},
		{productTail, "add_bias", "", "badd_bias"},
		{productHead, "scal_kernel quantize_q8", "", ""},
		{attention, "flash fmha sdpa attention attn_fwd fwd_attn mha_fwd _mha_", "", ""},
		{softmax, "softmax soft_max", "", ""},
		{other, "fprop convol winograd conv_depthwise dgrad wgrad", "", ""},
		{product, "gemm gemv nvjet cutlass xmma matmul mul_mat wgmma dot_kernel gemmk _mm_ mma_", "", ""},
		{layerNorm, norm, "", ""},
		{sampler, "sample", "", "at:: upsample"},
		{sampling, "argmax sampling multinomial topk sort distribution random philox radix", "", ""},
		{gelu, "gelu tanh erf_kernel " + gated, "", ""},
		{power, "pow_tensor pow_kernel", "", ""},
		{concatenation, "catarray concat append", "", ""},
		{masking, "fillfunctor<float fillfunctor<c10", "", ""},
		{other, "elementwise_kernel_with_index arange fillfunctor reduce_kernel cumsum scan", "", ""},
		{masking, "masked_fill where_kernel tril triu", "", ""},
		{embedding, "gather get_rows indexselect index_select embedding embed encoder_forward", "", ""},
		{other, "_add<long _add<int _add<bool _add<short _add<unsigned _add<signed", "functor", ""},
		{elementwise, "functoronself_add<", "", ""}, // a constant is added
		{add, "functor_add<", "", ""},
		{masking, "comparefunctor compareeq bitwise logical", "<float float,bool", ""},
		{other, "comparefunctor compareeq bitwise logical", "", ""},
		{add, "residual op_add add_kernel addkernel vector_add", "", ""},
		{multiply, "mulfunctor mul_kernel divfunctor op_mul op_scale", "", ""},
		{casting, "float16_copy_kernel", "", ""},
		{copying, "copy cpy transpose permute clone cast convert", "", ""},
		{concatenation, "index_elementwise index_kernel", "", ""},
		{elementwise, "elementwise", "", ""},
	}
)

// lookups are words of kernels that look up embeddings.
const lookups = "embedding embed_kernel embedlayernorm encoder_forward"

func readName(name string) kernelName {
	n := strings.ToLower(name)
	k := kernelName{key: spaces().ReplaceAllString(name, " "), adds: has(n, "badd residual")}
	k.norm = has(n, "layer_norm norm_f32 skiplayernorm layernorm ln_fwd rms_norm rmsnorm fused_residual rowwisemoments")
	k.rotary = has(n, "rotary rope_ _rope")
	k.embed = has(n, lookups) && !k.rotary
	k.rms = has(n, "rms_norm rmsnorm") || has(n, "vectorized_layer_norm_kernel") && strings.Contains(n, "float, true>")
	k.gated = has(n, "silu swiglu act_and_mul geglu")
	of, words := rules, "^"+strings.ReplaceAll(n, ", ", ",")+"$"
	if strings.HasPrefix(n, "triton_") {
		k.key, of = lastNumber().ReplaceAllString(n, ""), tritonRules
		words = "_" + strings.TrimPrefix(n, "triton_") + "_"
		k.norm = k.norm || has(words, "_rsqrt_") && has(words, "_mean_ _var_mean_ _var_")
		k.adds = has(words, "_add_")
	}
	for word, is := range map[string]bool{norm: k.norm, gated: k.gated, rotary: k.rotary} {
		if is {
			words += word
		}
	}
	for _, r := range of {
		if has(words, r.any) && (r.and == "" || has(words, r.and)) && !has(words, r.not) {
			k.class = r.class
			break
		}
	}
	k.norm = k.norm && k.class != backward
	return k
}
