package stages

import (
	"regexp"
	"strings"
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
	spaces     = regexp.MustCompile(`\s+`)
	lastNumber = regexp.MustCompile(`_\d+$`)
	integers   = regexp.MustCompile(`\b(long|int|bool|short|unsigned char|signed char)\b`)
	functorAdd = regexp.MustCompile(`functor(onself)?_add<([^>]*)`)
)

// isBroadcast reports whether a kernel is ggml's for all operations on two tensors: what it does depends on what is
// before and after it.
func isBroadcast(name string) bool { return strings.Contains(name, "bin_bcast") }

// readName classifies a kernel by its name.
func readName(name string) kernelName {
	k := kernelName{key: name}
	n := strings.ToLower(name)
	has := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(n, w) {
				return true
			}
		}
		return false
	}
	k.norm = has("layer_norm", "norm_f32", "skiplayernorm", "layernorm", "ln_fwd", "rms_norm", "rmsnorm",
		"fused_residual", "rowwisemoments", "general_layer_norm")
	k.rotary = has("rotary", "rope_", "_rope")
	k.embed = has("embedding", "embed_kernel", "embedlayernorm", "encoder_forward") && !k.rotary
	k.rms = has("rms_norm", "rmsnorm") || has("vectorized_layer_norm_kernel") && has("float, true>")
	k.gated = has("silu", "swiglu", "act_and_mul", "geglu")
	if strings.HasPrefix(n, "triton_") {
		k.key = lastNumber.ReplaceAllString(n, "")
		words := "_" + strings.TrimPrefix(n, "triton_") + "_"
		word := func(list ...string) bool {
			for _, w := range list {
				if strings.Contains(words, "_"+w+"_") {
					return true
				}
			}
			return false
		}
		k.norm = k.norm || word("rsqrt") && word("mean", "var_mean", "var")
		k.adds = word("add")
		switch {
		case strings.HasPrefix(n, "triton_tem_") && word("mm", "addmm", "bmm"),
			word("mm", "matmul") && strings.HasPrefix(n, "triton_tem"):
			k.class = product
		case k.norm:
			k.class = layerNorm
		case word("flash", "attention") && strings.HasPrefix(n, "triton_tem_"):
			k.class = attention
		case word("softmax"):
			k.class = softmax
		case word("gelu", "tanh", "erf"):
			k.class = gelu
		case has("scaled_dot_product", "index_copy", "index_put"):
			k.class = concatenation
		case k.embed && !word("cumsum", "eq"):
			k.class = embedding
		case word("argmax", "multinomial", "sort", "topk", "cumsum", "arange", "ne", "eq"):
			k.class = other
		case word("cat"):
			k.class = concatenation
		case word("clone", "transpose", "permute", "copy", "split"):
			k.class = copying
		case word("add"):
			k.class = add
		default:
			k.class = elementwise
		}
		return k
	}
	k.key = spaces.ReplaceAllString(name, " ")
	k.adds = has("badd", "residual")
	switch {
	case has("backward", "_bwd", "bwd_", "_grad", "adam", "optimizer", "multi_tensor", "global_norm"):
		k.class, k.norm = backward, false
	case has("addbias", "add_bias") && k.norm:
		k.class = layerNorm
	case has("biasgelu", "bias_gelu"):
		k.class = gelu
	case has("addbiasresidual", "add_bias_residual"):
		k.class = add
	case has("transposeqkv", "transpose_qkv", "transposectx"):
		k.class = concatenation
	case k.rotary, has("store_kvcache", "reshape_and_cache"):
		k.class = concatenation
	case n == "kernel" || n == "kernel2": // short names of gemvx::kernel and cutlass::Kernel2
		k.class = product
	case has("splitkreduce", "globalkernel", "split_k_kernel", "splitk_reduce", "epilogue::impl", "reduce_1block",
		"addbias"), has("add_bias") && !has("badd_bias"):
		k.class = productTail
	case has("scal_kernel", "quantize_q8"):
		k.class = productHead
	case has("flash", "fmha", "sdpa", "attention", "attn_fwd", "fwd_attn", "mha_fwd", "_mha_"):
		k.class = attention
	case has("softmax", "soft_max"):
		k.class = softmax
	case has("fprop", "convol", "winograd", "conv_depthwise", "dgrad", "wgrad"):
		k.class = other
	case has("gemm", "gemv", "nvjet", "cutlass", "xmma", "matmul", "mul_mat", "wgmma", "dot_kernel", "gemmk", "_mm_",
		"mma_"):
		k.class = product
	case k.norm:
		k.class = layerNorm
	case has("sample") && !has("at::", "upsample"):
		k.class = sampler
	case has("argmax", "sampling", "multinomial", "topk", "sort", "distribution", "random", "philox", "radix"):
		k.class = sampling
	case has("gelu", "tanh", "erf_kernel") || k.gated:
		k.class = gelu
	case has("pow_tensor", "pow_kernel"):
		k.class = power
	case has("catarray", "concat", "append"):
		k.class = concatenation
	case has("elementwise_kernel_with_index", "arange", "fillfunctor", "reduce_kernel", "cumsum", "scan"):
		k.class = other
		if has("fillfunctor<float", "fillfunctor<c10") {
			k.class = masking
		}
	case has("masked_fill", "where_kernel", "tril", "triu"):
		k.class = masking
	case has("gather", "get_rows", "indexselect", "index_select", "embedding", "embed", "encoder_forward"):
		k.class = embedding
	case functorAdd.MatchString(n):
		k.class = add
		if m := functorAdd.FindStringSubmatch(n); integers.MatchString(m[2]) {
			k.class = other
		} else if m[1] != "" {
			k.class = elementwise // a constant is added
		}
	case has("comparefunctor", "compareeq", "bitwise", "logical"):
		k.class = other
		if has("<float", "float, bool") {
			k.class = masking
		}
	case has("residual", "op_add", "add_kernel", "addkernel", "vector_add"):
		k.class = add
	case has("mulfunctor", "mul_kernel", "divfunctor", "op_mul", "op_scale"):
		k.class = multiply
	case has("float16_copy_kernel"):
		k.class = casting
	case has("copy", "cpy", "transpose", "permute", "clone", "cast", "convert"):
		k.class = copying
	case has("index_elementwise", "index_kernel"):
		k.class = concatenation
	case has("elementwise"):
		k.class = elementwise
	}
	return k
}
