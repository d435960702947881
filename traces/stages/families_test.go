package stages

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gpt2scope/traces"
)

// family is how a framework executes a decoder: the kernels of each stage, "STAGE: NAME | NAME". In the layers, N is
// the layer's number, M the next one's. A name may end in " @x,y,z", its grid.
type family struct {
	name   string
	before []string // of a pass
	layer  []string
	last   []string // in place of layer in the last layer, if it differs
	after  []string
}

// families are sequences of kernels as frameworks launch them.
var families = []family{
	{"PyTorch 1 on a V100, float32",
		[]string{": void at::native::elementwise_kernel_with_index<int, arange_cuda_out>", "wte+wpe: void at::native::indexSelectLargeIndex<float, long, unsigned int, 2, 2, -2, true> | void at::native::indexSelectSmallIndex<float, long> | void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3> >",
			"h.0.ln_1: void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<float> | void at::native::(anonymous namespace)::LayerNormForwardCUDAKernel<float>"},
		[]string{"h.N.attn.c_attn: volta_sgemm_128x64_nn @18,2,1", "h.N.attn.sdpa: void at::native::elementwise_kernel<512, 1, copy_device_to_device> | volta_sgemm_64x64_nn @2,2,12 | void at::native::vectorized_elementwise_kernel<4, DivFunctor<float> > | void at::native::elementwise_kernel<128, 4, where_kernel_impl> | void (anonymous namespace)::softmax_warp_forward<float, float, float, 7, false> | volta_sgemm_64x64_nn @1,2,12 | void at::native::elementwise_kernel<128, 4, copy_device_to_device>",
			"h.N.attn.c_proj: volta_sgemm_128x32_nn @6,4,3 | void splitKreduce_kernel<float, float, float>", "h.N.residual_1: void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3> >",
			"h.N.ln_2: void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<float> | void at::native::(anonymous namespace)::LayerNormForwardCUDAKernel<float>", "h.N.mlp.c_fc: volta_sgemm_128x64_nn @24,2,1",
			"h.N.mlp.gelu: void at::native::vectorized_elementwise_kernel<4, MulFunctor<float> > | void at::native::vectorized_elementwise_kernel<4, pow_tensor_scalar_kernel_impl<float, float>> | void at::native::vectorized_elementwise_kernel<4, MulFunctor<float> > | void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, Array<char*, 3> > @384,1,1 | void at::native::vectorized_elementwise_kernel<4, tanh_kernel_cuda> | void at::native::vectorized_elementwise_kernel<4, CUDAFunctorOnSelf_add<float>> | void at::native::vectorized_elementwise_kernel<4, MulFunctor<float> >",
			"h.N.mlp.c_proj: volta_sgemm_128x32_nn @6,4,6 | void splitKreduce_kernel<float, float, float>", "h.N.residual_2: void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3> >",
			"NEXT: void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<float> | void at::native::(anonymous namespace)::LayerNormForwardCUDAKernel<float>"}, nil,
		[]string{"lm_head: volta_sgemm_128x128_tn @393,1,1"}},
	{"PyTorch on an A100, bfloat16, flash attention",
		[]string{"wte+wpe: void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long> | void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long> | void at::native::elementwise_kernel<128, 4, CUDAFunctor_add<c10::BFloat16> >", "h.0.ln_1: void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>"},
		[]string{"h.N.attn.c_attn: ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn @18,8,1", "h.N.attn.sdpa: void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::bfloat16_t> >",
			"h.N.attn.c_proj: ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_tn @6,16,1", "h.N.residual_1: void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16> >", "h.N.ln_2: void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>",
			"h.N.mlp.c_fc: ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn @24,8,1", "h.N.mlp.gelu: void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::{lambda()#1}>",
			"h.N.mlp.c_proj: ampere_bf16_s16816gemm_bf16_128x64_sliced1x2_ldg8_f2f_stages_64x3_tn @6,16,1", "h.N.residual_2: void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16> >", "NEXT: void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>"}, nil,
		[]string{"lm_head: ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn"}},
	{"decode steps of PyTorch by gemvx, with a concatenated cache",
		[]string{"wte+wpe: void at::native::(anonymous namespace)::indexSelectSmallIndex<c10::Half, long> | void at::native::(anonymous namespace)::indexSelectSmallIndex<c10::Half, long> | void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<c10::Half> > @1,1,1", "h.0.ln_1: void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::Half, float> @1,1,1"},
		[]string{"h.N.attn.c_attn: std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, __half, __half, __half, float, false, true, true, false, 6> @576,1,1 | void cublasLt::epilogue::impl::globalKernel<8, 32, __half>", "h.N.attn.sdpa: void at::native::(anonymous namespace)::CatArrayBatchedCopy_aligned16_contig<c10::Half> | void at::native::(anonymous namespace)::CatArrayBatchedCopy_aligned16_contig<c10::Half> | void pytorch_flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<64, 64, 256, 4> > | void pytorch_flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<64, 64, 256, 4> >",
			"h.N.attn.c_proj: std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, __half, __half, __half, float, false, true, true, false, 6> @192,1,1 | void cublasLt::epilogue::impl::globalKernel<8, 32, __half>", "h.N.residual_1: void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<c10::Half> > @2,1,1", "h.N.ln_2: void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::Half, float> @1,1,1",
			"h.N.mlp.c_fc: std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, __half, __half, __half, float, false, true, true, false, 6> @768,1,1 | void cublasLt::epilogue::impl::globalKernel<8, 32, __half>", "h.N.mlp.gelu: void at::native::vectorized_elementwise_kernel<4, GeluCUDAKernelImpl>",
			"h.N.mlp.c_proj: std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, __half, __half, __half, float, false, true, true, false, 7> @192,1,1 | void cublasLt::epilogue::impl::globalKernel<8, 32, __half>", "h.N.residual_2: void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<c10::Half> > @2,1,1", "NEXT: void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::Half, float> @1,1,1"}, nil,
		[]string{"lm_head: void gemv2T_kernel_val<int, int, __half, __half, __half, float, 128, 16, 4, 4, false>", ": void at::native::reduce_kernel<512, 1, at::native::ReduceOp<c10::Half, at::native::ArgMaxOps<float> > >"}},
	{"llm.c in float32",
		[]string{"wte+wpe: encoder_forward_kernel3(float4*, int const*, float4 const*, float4 const*, int, int, int)", "h.0.ln_1: layernorm_forward_kernel3(float*, float*, float*, float const*, float const*, float const*, int, int)"},
		[]string{"h.N.attn.c_attn: matmul_forward_kernel4(float*, float const*, float const*, float const*, int, int) @18,8,1", "h.N.attn.sdpa: permute_kernel(float*, float*, float*, float const*, int, int, int, int) | ampere_sgemm_128x64_tn @2,4,12 | softmax_forward_kernel5(float*, float, float const*, int, int) | ampere_sgemm_128x64_nn @1,4,12 | unpermute_kernel(float*, float*, int, int, int, int)",
			"h.N.attn.c_proj: matmul_forward_kernel4(float*, float const*, float const*, float const*, int, int) @6,8,1", "h.N.residual_1: residual_forward_kernel(float*, float*, float*, int)", "h.N.ln_2: layernorm_forward_kernel3(float*, float*, float*, float const*, float const*, float const*, int, int)", "h.N.mlp.c_fc: matmul_forward_kernel4(float*, float const*, float const*, float const*, int, int) @24,8,1",
			"h.N.mlp.gelu: gelu_forward_kernel(float*, float const*, int)", "h.N.mlp.c_proj: matmul_forward_kernel4(float*, float const*, float const*, float const*, int, int) @6,8,1", "h.N.residual_2: residual_forward_kernel(float*, float*, float*, int)", "NEXT: layernorm_forward_kernel3(float*, float*, float*, float const*, float const*, float const*, int, int)"}, nil,
		[]string{"lm_head: ampere_sgemm_128x128_tn", ": fused_classifier_kernel3(float*, float*, int const*, int, int, int, int)"}},
	{"llm.c with its own attention",
		[]string{"wte+wpe: encoder_forward_kernel2", "h.0.ln_1: layernorm_forward_kernel3"},
		[]string{"h.N.attn.c_attn: cutlass_80_simt_sgemm_128x128_8x4_tn_align1 | add_bias(float*, float*, int, int, int)", "h.N.attn.sdpa: attention_forward(float*, float*, float*, float const*, int, int, int, int)", "h.N.attn.c_proj: cutlass_80_simt_sgemm_128x128_8x4_tn_align1 @6,2,1 | add_bias(float*, float*, int, int, int) @9,1,1",
			"h.N.residual_1: residual_forward_kernel", "h.N.ln_2: layernorm_forward_kernel3", "h.N.mlp.c_fc: cutlass_80_simt_sgemm_128x128_8x4_tn_align1 @24,2,1 | add_bias(float*, float*, int, int, int) @18,1,1", "h.N.mlp.gelu: gelu_forward", "h.N.mlp.c_proj: cutlass_80_simt_sgemm_128x128_8x4_tn_align1 @6,2,4 | add_bias(float*, float*, int, int, int) @9,1,1", "h.N.residual_2: residual_forward_kernel", "NEXT: layernorm_forward_kernel3"}, nil,
		[]string{"lm_head: cutlass_80_simt_sgemm_256x128_8x4_tn_align1"}},
	{"llm.c that trains",
		[]string{"wte+wpe: encoder_forward_kernel3", "h.0.ln_1: layernorm_forward_kernel6"},
		[]string{"h.N.attn.c_attn: sm90_xmma_gemm_bias_1",
			"h.N.attn.sdpa: permute_kernel | cutlass_gemm_tn | softmax_forward_kernel5 | cutlass_gemm_nn | unpermute_kernel",
			"h.N.attn.c_proj: sm90_xmma_gemm_bias_2", "h.N.residual_1+h.N.ln_2: fused_residual_forward_kernel5",
			"h.N.mlp.c_fc: sm90_xmma_gemm_bias_1", "h.N.mlp.gelu: gelu_forward_kernel2", "h.N.mlp.c_proj: sm90_xmma_gemm_bias_2",
			"h.N.residual_2+NEXT: fused_residual_forward_kernel5"}, nil,
		append([]string{"lm_head: sm90_xmma_gemm_3", ": fused_classifier_kernel5 | cutlass_gemm_nt | cutlass_gemm_nn2 | layernorm_backward_kernel10"},
			append(slices.Repeat([]string{": matmul_backward_bias_kernel9 | cutlass_gemm_nt | cutlass_gemm_nn2 | gelu_backward_inplace_kernel | layernorm_backward_kernel10 | unpermute_kernel_backward",
				": softmax_backward_kernel | cutlass_gemm_nt | permute_kernel_backward | matmul_backward_bias_kernel9 | cutlass_gemm_nt | cutlass_gemm_nn2 | layernorm_backward_kernel10"}, 6),
				": wte_backward_kernel | adamw_kernel3")...)},
	{"llama.cpp, quantised decode",
		[]string{"wte+wpe: void k_get_rows_float<float, float> | void k_get_rows_float<float, float> @1,1,1 | void k_bin_bcast<&(op_add(float, float)), float, float, float>", "h.0.ln_1: void norm_f32<1024>(float const*, float*, int, long, long, long, float) | void k_bin_bcast<&(op_mul(float, float)), float, float, float> | void k_bin_bcast<&(op_add(float, float)), float, float, float> @3,1,1"},
		[]string{"h.N.attn.c_attn: quantize_q8_1(float const*, void*, long) | void mul_mat_vec_q<(ggml_type)8, 1, false> @2304,1,1 | void k_bin_bcast<&(op_add(float, float)), float, float, float> @9,1,1", "h.N.attn.sdpa: void cpy_f32_f16<&(cpy_1_f32_f16(char const*, char*))> | void cpy_f32_f16<&(cpy_1_f32_f16(char const*, char*))> | void flash_attn_vec_ext_f16<64, 1, 1, (ggml_type)1, (ggml_type)1, false> | void flash_attn_combine_results<64>",
			"h.N.attn.c_proj: quantize_q8_1(float const*, void*, long) | void mul_mat_vec_q<(ggml_type)8, 1, false> @768,1,1 | void k_bin_bcast<&(op_add(float, float)), float, float, float> @3,1,2", "h.N.residual_1: void k_bin_bcast<&(op_add(float, float)), float, float, float> @3,1,3",
			"h.N.ln_2: void norm_f32<1024>(float const*, float*, int, long, long, long, float) | void k_bin_bcast<&(op_mul(float, float)), float, float, float> | void k_bin_bcast<&(op_add(float, float)), float, float, float> @3,1,1", "h.N.mlp.c_fc: quantize_q8_1(float const*, void*, long) | void mul_mat_vec_q<(ggml_type)8, 1, false> @3072,1,1 | void k_bin_bcast<&(op_add(float, float)), float, float, float> @12,1,1",
			"h.N.mlp.gelu: void unary_op_kernel<&(op_gelu(float)), float>(float const*, float*, int)", "h.N.mlp.c_proj: quantize_q8_1(float const*, void*, long) @12,1,1 | void mul_mat_vec_q<(ggml_type)8, 1, false> @768,1,4 | void k_bin_bcast<&(op_add(float, float)), float, float, float> @3,1,2", "h.N.residual_2: void k_bin_bcast<&(op_add(float, float)), float, float, float> @3,1,3",
			"NEXT: void norm_f32<1024>(float const*, float*, int, long, long, long, float) | void k_bin_bcast<&(op_mul(float, float)), float, float, float> | void k_bin_bcast<&(op_add(float, float)), float, float, float> @3,1,1"}, nil,
		[]string{"lm_head: quantize_q8_1(float const*, void*, long) | void mul_mat_vec_q<(ggml_type)8, 1, false> @50257,1,1"}},
	{"torch.compile by Triton templates",
		[]string{"wte+wpe+h.0.ln_1: triton_red_fused_add_embedding_native_layer_norm_0"},
		[]string{"h.N.attn.c_attn: triton_tem_fused_addmm_1", "h.N.attn.sdpa: triton_tem_fused__scaled_dot_product_flash_attention_transpose_view_2", "h.N.attn.c_proj: triton_tem_fused_addmm_3", "h.N.residual_1+h.N.ln_2: triton_per_fused_add_addmm_native_layer_norm_view_4", "h.N.mlp.c_fc+h.N.mlp.gelu: triton_tem_fused_addmm_gelu_5", "h.N.mlp.c_proj: triton_tem_fused_addmm_6 @12,1,1", "h.N.residual_2+NEXT: triton_per_fused_add_addmm_native_layer_norm_view_7"}, nil,
		[]string{"lm_head: triton_tem_fused_mm_8"}},
	{"JAX by XLA",
		[]string{"wte+wpe: loop_gather_fusion_2 | input_add_gather_fusion", "h.0.ln_1: input_reduce_fusion_1 | loop_layer_norm_fusion_3"},
		[]string{"h.N.attn.c_attn: nvjet_tst_128x64_64x6_2x1_v_bz_bias_TNN @18,2,1", "h.N.attn.sdpa: cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_7_64x64x64_4x1x1_kernel0_0", "h.N.attn.c_proj: nvjet_tst_64x32_64x16_4x1_v_bz_TNN", "h.N.residual_1+h.N.ln_2: input_add_reduce_layer_norm_fusion_4", "h.N.mlp.c_fc: nvjet_tst_128x64_64x6_2x1_v_bz_bias_TNN @24,2,1",
			"h.N.mlp.gelu: loop_tanh_multiply_fusion_7", "h.N.mlp.c_proj: nvjet_tst_64x64_64x12_4x1_v_bz_splitK_TNN", "h.N.residual_2+NEXT: input_add_reduce_layer_norm_fusion_5"}, nil,
		[]string{"lm_head: nvjet_tst_192x128_64x4_2x1_v_bz_TNT"}},
	{"TensorRT",
		[]string{"wte+wpe: __myl_GatGatAdd_0x1f2e", "h.0.ln_1: __myl_MeaSubMulMeaAddSqrDivMulMulAdd_layernorm_0x22"},
		[]string{"h.N.attn.c_attn: sm80_xmma_gemm_f16f16_f16f16_f16_nn_n_tilesize128x64x32_stage5_warpsize2x2x1_tensor16x8x16_fused @18,2,1", "h.N.attn.sdpa: _gemm_mha_v2_0x8d9a3c | __myl_Tran_0x90", "h.N.attn.c_proj: sm80_xmma_gemm_f16f16_f16f16_f16_nn_n_tilesize64x64x64_stage5_warpsize2x2x1_tensor16x8x16_fused @12,2,1", "h.N.residual_1+h.N.ln_2: __myl_AddMeaSubMulMeaAddSqrDivMulMulAdd_layernorm_0x7a",
			"h.N.mlp.c_fc: sm80_xmma_gemm_f16f16_f16f16_f16_nn_n_tilesize128x64x32_stage5_warpsize2x2x1_tensor16x8x16_fused @24,2,1", "h.N.mlp.gelu: __myl_MulMulMulAddMulTanhAddMul_0x61", "h.N.mlp.c_proj: sm80_xmma_gemm_f16f16_f16f16_f16_nn_n_tilesize64x64x64_stage5_warpsize2x2x1_tensor16x8x16_fused @12,2,4", "h.N.residual_2+NEXT: __myl_AddMeaSubMulMeaAddSqrDivMulMulAdd_layernorm_0x7a"}, nil,
		[]string{"lm_head: sm80_xmma_gemm_f16f16_f16f16_f16_tn_n_tilesize256x128x32_stage3_warpsize4x2x1_tensor16x8x16_fused"}},
	{"ONNX Runtime",
		[]string{"wte+wpe+h.0.ln_1: void onnxruntime::contrib::cuda::EmbedLayerNormKernel<__half, 128u>"},
		[]string{"h.N.attn.c_attn: turing_h1688gemm_128x128_nn @18,2,1 | void onnxruntime::cuda::AddBiasKernel<__half>", "h.N.attn.sdpa: void onnxruntime::contrib::cuda::AddBiasTransposeQKV<__half> | turing_h1688gemm_64x64_tn @2,2,12 | void onnxruntime::contrib::cuda::MaskedSoftmaxKernelSmall<__half, 128> | turing_h1688gemm_64x64_nn @1,2,12 | void onnxruntime::contrib::cuda::TransposeCtx<__half>", "h.N.attn.c_proj: turing_h1688gemm_128x64_nn @6,2,1",
			"h.N.residual_1+h.N.ln_2: void onnxruntime::contrib::cuda::SkipLayerNormKernelSmall<__half, 192u, 4>", "h.N.mlp.c_fc: turing_h1688gemm_128x128_nn @24,2,1", "h.N.mlp.gelu: void onnxruntime::contrib::cuda::FastGeluKernel2<256u, __half2>", "h.N.mlp.c_proj: turing_h1688gemm_128x64_nn @6,2,1", "h.N.residual_2+NEXT: void onnxruntime::contrib::cuda::SkipLayerNormKernelSmall<__half, 192u, 4>"}, nil,
		[]string{"lm_head: turing_h1688gemm_256x128_tn"}},
	{"FasterTransformer",
		[]string{"wte+wpe: void fastertransformer::start_id_embedding_position_lookups_kernel<__half>", "h.0.ln_1: void fastertransformer::generalLayerNorm<__half2, false>"},
		[]string{"h.N.attn.c_attn: ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_stages_64x5_nn @36,1,1", "h.N.attn.sdpa: void mmha::masked_multihead_attention_kernel<unsigned short, 64, 64, 4, 8, 128, false, false>", "h.N.attn.c_proj: ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_stages_64x5_nn @12,1,1", "h.N.residual_1+h.N.ln_2: void fastertransformer::generalAddBiasResidualLayerNormOpt<__half2, true, true>",
			"h.N.mlp.c_fc: ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_stages_64x5_nn @48,1,1", "h.N.mlp.gelu: void fastertransformer::generic_activation<fastertransformer::GeluActivation, __half2, __half2>", "h.N.mlp.c_proj: ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_stages_64x5_nn @12,1,4", "h.N.residual_2: void fastertransformer::addBiasResidual<__half2, 1>", "NEXT: void fastertransformer::generalLayerNorm<__half2, false>"}, nil,
		[]string{"lm_head: ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x3_tn", ": void fastertransformer::topk_stage_1_opt3<float, 128, 8> | void fastertransformer::topk_stage_2_opt3_sampling<float, 128, 8>"}},
	{"vLLM",
		[]string{"wte+wpe: void at::native::(anonymous namespace)::indexSelectSmallIndex<c10::BFloat16, long> | void at::native::(anonymous namespace)::indexSelectSmallIndex<c10::BFloat16, long> | void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<c10::BFloat16> >", "h.0.ln_1: void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>"},
		[]string{"h.N.attn.c_attn: nvjet_tst_64x8_64x16_4x1_v_bz_bias_TNN @9,1,1", "h.N.attn.sdpa: void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16, (vllm::Fp8KVCacheDataType)0> | void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<64, 64, 128, 4> > | void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<64, 64, 128, 4> >", "h.N.attn.c_proj: nvjet_tst_64x8_64x16_4x1_v_bz_bias_TNN @3,1,1", "h.N.residual_1: void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<c10::BFloat16> >",
			"h.N.ln_2: void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>", "h.N.mlp.c_fc: nvjet_tst_64x8_64x16_4x1_v_bz_bias_TNN @12,1,1", "h.N.mlp.gelu: void vllm::activation_kernel<c10::BFloat16, &(c10::BFloat16 vllm::gelu_new_kernel<c10::BFloat16>(c10::BFloat16 const&))>", "h.N.mlp.c_proj: nvjet_tst_64x8_64x16_4x1_v_bz_splitK_bias_TNN | void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>", "h.N.residual_2: void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<c10::BFloat16> >",
			"NEXT: void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>"}, nil,
		[]string{": void at::native::index_elementwise_kernel<128, 4, gpu_index_kernel>", "lm_head: nvjet_tst_64x8_64x16_4x1_v_bz_TNN", ": void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float> > >"}},
	{"Megatron with Transformer Engine",
		[]string{"wte+wpe: void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long> | void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long> | void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<c10::BFloat16> >", "h.0.ln_1: void transformer_engine::normalization::ln_fwd_tuned_kernel<Kernel_traits<__nv_bfloat16> >"},
		[]string{"h.N.attn.c_attn: sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas @18,8,1", "h.N.attn.sdpa: cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3_64x128x64_4x1x1_kernel0_0", "h.N.attn.c_proj: sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas @6,8,1",
			"h.N.residual_1: triton_poi_fused_add_bias_dropout_0", "h.N.ln_2: void transformer_engine::normalization::ln_fwd_tuned_kernel<Kernel_traits<__nv_bfloat16> >", "h.N.mlp.c_fc: sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas @24,8,1", "h.N.mlp.gelu: void transformer_engine::gelu_kernel<__nv_bfloat16>", "h.N.mlp.c_proj: sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas @6,8,2",
			"h.N.residual_2: triton_poi_fused_add_bias_dropout_0", "NEXT: void transformer_engine::normalization::ln_fwd_tuned_kernel<Kernel_traits<__nv_bfloat16> >"}, nil,
		[]string{"lm_head: sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x256x64_warpgroupsize2x1x1_execute_segment_k_off_kernel__5x_cublas"}},
}

// list writes passes of a family.
func (f family) list(passes, layers int) []truth {
	var list []truth
	at := int64(0)
	add := func(lines []string, layer int) {
		for _, line := range lines {
			stage, names, _ := strings.Cut(line, ": ")
			next := "ln_f"
			if layer < layers-1 {
				next = fmt.Sprintf("h.%d.ln_1", layer+1)
			}
			stage = strings.NewReplacer("h.N.", fmt.Sprintf("h.%d.", layer), "NEXT", next).Replace(stage)
			for name := range strings.SplitSeq(names, " | ") {
				name, grid, _ := strings.Cut(name, " @")
				duration := int64(10)
				if strings.HasSuffix(stage, "c_attn") || strings.Contains(stage, "mlp.c_") || stage == "lm_head" {
					duration = 30
				}
				k := truth{event: traces.Plain(traces.KindKernel, traces.Stream(1, 0, 1, 7), name, at, duration), stage: stage}
				k.event.Grid = [3]int32{40, 1, 1}
				fmt.Sscanf(grid, "%d,%d,%d", &k.event.Grid[0], &k.event.Grid[1], &k.event.Grid[2])
				list = append(list, k)
				at += duration + 1
			}
		}
	}
	for range passes {
		add(f.before, -1)
		for l := range layers {
			add(f.layer, l)
		}
		add(f.after, layers)
	}
	return list
}

// TestFamilies: the stages of other frameworks' kernels, of which there are no captures, by their names: whole passes,
// of one layer and of many, and a window that begins and ends within one.
func TestFamilies(t *testing.T) {
	for _, f := range families {
		for how, list := range map[string][]truth{
			"1 layer": f.list(6, 1), "24 layers": f.list(2, 24),
			"cut": f.list(4, 12)[len(f.list(1, 12))/2 : len(f.list(3, 12))+len(f.list(1, 12))/3],
		} {
			r := inferred(t, list)
			percent, given, _, wrong := grade(list, r)
			t.Logf("%s, %s: %.2f %%", f.name, how, percent)
			if percent < 95 || given > len(list)/100 {
				t.Errorf("%s, %s: %.2f %% of the time is right, %d kernels of no stage have one; wrong, in ns: %v; %s", f.name, how, percent, given, wrong, r.Describe())
			}
		}
	}
}

// TestNoDecoder: the kernels of other networks have no stages, also where products follow one another as in the layers
// of a decoder. A recording without kernels is refused.
func TestNoDecoder(t *testing.T) {
	if _, err := Infer(traces.NewTrace(&traces.Header{}, nil), nil); err == nil || !strings.Contains(err.Error(), "no kernels") {
		t.Errorf("a recording without kernels: %v", err)
	}
	convolutions := family{name: "convolutions",
		before: []string{": void at::native::distribution_elementwise_grid_stride_kernel<float>"},
		layer: []string{": cudnn_ampere_scudnn_128x64_relu_xregs_large_nn_v1 | add_tensor<CUDAFunctor_add<float>> | clamp_scalar_kernel | max_pool_forward_nchw | fft2d_r2c_32x32 | fft2d_r2c_32x32 | ampere_gcgemm_64x64_nt @3,1,1 | fft2d_c2r_32x32 | CUDAFunctor_add<float> | clamp_scalar_kernel",
			": cudnn::ops::nchwToNhwcKernel | sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tilesize128x128x16 @9,1,1 | CUDAFunctor_add<float> | clamp_scalar_kernel | cudnn::ops::nchwToNhwcKernel | sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tilesize128x128x16 @7,1,1 | CUDAFunctor_add<float> | clamp_scalar_kernel"},
		after: []string{": adaptive_average_pool<float> | fused_dropout_kernel_vec | ampere_sgemm_32x32_sliced1x4_tn | epilogue::impl::globalKernel | clamp_scalar_kernel | ampere_sgemm_32x32_sliced1x4_tn @5,1,1 | epilogue::impl::globalKernel"}}
	recommender := family{name: "embeddings and products",
		before: []string{": void at::native::indexSelectLargeIndex<float, long> | split_embedding_codegen_forward_unweighted_kernel | CUDAFunctor_add<float>"},
		layer:  []string{": volta_sgemm_128x64_tn @8,4,1 | threshold_kernel | volta_sgemm_128x64_tn @4,4,1 | threshold_kernel | CUDAFunctor_add<float> | volta_sgemm_32x128_tn @2,4,1 | sigmoid_kernel | volta_sgemm_32x128_tn @1,4,1"},
		after:  []string{": CatArrayBatchedCopy<float> | volta_sgemm_64x64_nn @7,7,1 | binary_cross_entropy_kernel | volta_sgemm_128x64_nt @8,8,1"}}
	for _, f := range []family{convolutions, recommender} {
		for _, layers := range []int{1, 6} {
			list := f.list(5, layers)
			if r := inferred(t, list); len(r.Passes) > 0 {
				_, given, _, _ := grade(list, r)
				t.Errorf("%s of %d layers: %s; %d of %d kernels have a stage", f.name, layers, r.Describe(), given, len(list))
			}
		}
	}
}

// TestInterleaved: two programs at once, in two processes or on two devices; one model that uses two streams.
func TestInterleaved(t *testing.T) {
	streams := labelled(t, "../samples/stages/hf-sdpa-bf16-L12-generate.json.gz")
	for i := range streams {
		streams[i].event.Lane = traces.Stream(1, 0, 1, []int64{7, 13}[i/3%2])
	}
	if percent, _, _, _ := grade(streams, inferred(t, streams)); percent < 98 {
		t.Errorf("one model on two streams: %.2f %% of the time is right", percent)
	}
	for how, lanes := range map[string][2]traces.Lane{
		"processes": {traces.Stream(1, 0, 1, 7), traces.Stream(2, 0, 1, 7)},
		"devices":   {traces.Stream(1, 0, 1, 7), traces.Stream(1, 1, 1, 7)},
	} {
		first, second := labelled(t, "../samples/stages/hf-sdpa-bf16-L12-generate.json.gz"), families[3].list(8, 12)
		var both []truth
		for which, list := range [][]truth{first, second} {
			for i, k := range list {
				k.event.Lane = lanes[which]
				if which == 1 { // spread over the time of the first
					k.event.Time = first[i*len(first)/len(second)].event.Time + int64(i%7) + 1
				}
				both = append(both, k)
			}
		}
		slices.SortStableFunc(both, func(a, b truth) int { return cmp.Compare(a.event.Time, b.event.Time) })
		r := inferred(t, both)
		percent, _, _, wrong := grade(both, r)
		t.Logf("%s: %.2f %%, %s", how, percent, r.Describe())
		if percent < 98 || len(r.Passes) != 13 {
			t.Errorf("%s: %.2f %% of the time is right, %s; wrong, in ns: %v", how, percent, r.Describe(), wrong)
		}
	}
}

// TestPhases: prefills of two lengths, decode steps of many sequences, and training.
func TestPhases(t *testing.T) {
	prefillOf := func(rows int) func(*truth) {
		return func(k *truth) {
			if strings.Contains(k.event.Name, "layer_norm") {
				k.event.Grid = [3]int32{int32(rows), 1, 1}
			}
		}
	}
	a100, gemv := families[1], families[2]
	manySequences := a100
	manySequences.layer = slices.Clone(a100.layer)
	for i, line := range manySequences.layer {
		if strings.HasPrefix(line, "h.N.attn.sdpa") {
			manySequences.layer[i] = "h.N.attn.sdpa: void at::native::CatArrayBatchedCopy<c10::BFloat16> | void at::native::CatArrayBatchedCopy<c10::BFloat16> | void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<64, 64, 256, 4> >"
		}
	}
	type part struct {
		family family
		rows   int
		passes int
	}
	for name, test := range map[string]struct {
		parts []part
		want  string
	}{
		"two lengths":                         {[]part{{a100, 16, 2}, {a100, 128, 2}, {a100, 16, 1}}, "5 passes of 4 layers (5 prefills)"},
		"two lengths of which one is another": {[]part{{a100, 128, 2}, {a100, 64, 2}}, "4 passes of 4 layers (4 prefills)"},
		"prefill and decode":                  {[]part{{a100, 128, 1}, {gemv, 1, 3}}, "4 passes of 4 layers (1 prefill, 3 decode steps)"},
		"32 sequences":                        {[]part{{a100, 1024, 1}, {manySequences, 32, 3}, {a100, 2048, 1}, {manySequences, 32, 2}}, "7 passes of 4 layers (2 prefills, 5 decode steps)"},
		"decode first":                        {[]part{{manySequences, 32, 2}, {a100, 1024, 1}, {manySequences, 32, 3}}, "6 passes of 4 layers (1 prefill, 5 decode steps)"},
		"decode of few sequences alone":       {[]part{{manySequences, 4, 3}}, "3 passes of 4 layers (3 decode steps)"},
		"no grids":                            {[]part{{families[3], 0, 3}}, "3 passes of 4 layers (3 prefills)"},
	} {
		var list []truth
		for _, p := range test.parts {
			for _, k := range p.family.list(p.passes, 4) {
				if p.rows == 0 {
					k.event.Grid = [3]int32{}
				} else {
					prefillOf(p.rows)(&k)
				}
				if len(list) > 0 {
					k.event.Time = list[len(list)-1].event.End() + 1
				}
				list = append(list, k)
			}
		}
		r := inferred(t, list)
		if got := r.Describe(); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
		if percent, _, _, wrong := grade(list, r); percent < 98 {
			t.Errorf("%s: %.2f %% of the time is right; wrong, in ns: %v", name, percent, wrong)
		}
	}
}

// TestTrainingOfPyTorch: the products of a backward pass have the names of those of the forward pass. They have no
// stage, and no pass is a decode step.
func TestTrainingOfPyTorch(t *testing.T) {
	training := families[1]
	var back []string
	back = append(training.after, ": void at::native::cunn_SoftMaxForward<4, float, float, LogSoftMaxForwardEpilogue> | void at::native::nll_loss_forward_reduce_cuda_kernel_2d<float> | void at::native::nll_loss_backward_reduce_cuda_kernel_2d<float> | void at::native::cunn_SoftMaxBackward<4, float>",
		": ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nt @393,6,1 | ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn @6,8,1 | void at::native::layer_norm_grad_input_kernel_vectorized<c10::BFloat16> | void at::native::GammaBetaBackwardCUDAKernelTemplate<c10::BFloat16>")
	for range 6 {
		back = append(back, ": void at::native::reduce_kernel<128, 4, sum_functor<c10::BFloat16>> | ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_nn @24,16,1 | ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_nt @6,48,1 | void at::native::vectorized_elementwise_kernel<4, GeluBackwardCUDAKernelImpl> | void at::native::reduce_kernel<128, 4, sum_functor<c10::BFloat16>> | ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_nn @6,16,1 | ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_nt @24,12,1 | void at::native::layer_norm_grad_input_kernel_vectorized<c10::BFloat16> | void at::native::GammaBetaBackwardCUDAKernelTemplate<c10::BFloat16> | void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16> >",
			": ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_nn @6,16,1 | ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_nt @6,12,1 | void pytorch_flash::flash_bwd_dot_do_o_kernel | void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel | void pytorch_flash::flash_bwd_convert_dq_kernel | void at::native::CatArrayBatchedCopy<c10::BFloat16> | ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_nn @6,16,1 | ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_nt @18,12,1 | void at::native::layer_norm_grad_input_kernel_vectorized<c10::BFloat16> | void at::native::GammaBetaBackwardCUDAKernelTemplate<c10::BFloat16> | void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16> >")
	}
	training.after = append(back, ": void at::native::embedding_backward_feature_kernel<c10::BFloat16> | void at::native::multi_tensor_apply_kernel<TensorListMetadata<4>, FusedAdamMathFunctor<float>> | void at::native::multi_tensor_apply_kernel<TensorListMetadata<4>, FusedAdamMathFunctor<float>>")
	list := training.list(3, 6)
	r := inferred(t, list)
	percent, given, outside, wrong := grade(list, r)
	t.Logf("%.2f %% of the time is right, %s", percent, r.Describe())
	if percent < 98 || 100*given > outside || strings.Contains(r.Describe(), "decode") || len(r.Passes) != 3 {
		t.Errorf("%.2f %% of the time is right, %d of %d kernels of no stage have one; %s; wrong, in ns: %v", percent, given, outside, r.Describe(), wrong)
	}
}
