package traces

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"gpt2scope/internal/require"
)

// TestCall: what API calls do, by the names that the CUDA runtime and driver have for them.
func TestCall(t *testing.T) {
	for name, want := range map[string]Call{
		"cudaLaunchKernel": CallLaunch, "cuLaunchKernelEx": CallLaunch, "cudaLaunchCooperativeKernel": CallLaunch, "cudaLaunchKernelExC_v11060": CallLaunch,
		"cudaGraphLaunch": CallGraphLaunch, "cuGraphLaunch": CallGraphLaunch,
		"cudaStreamBeginCapture": CallBeginCapture, "cudaStreamEndCapture": CallEndCapture,
		"cuModuleLoadData": CallLoad, "cuLibraryLoadData": CallLoad,
		"cudaStreamSynchronize": CallSync, "cudaDeviceSynchronize": CallSync, "cudaEventSynchronize": CallSync,
		"cudaMemcpy": CallCopy, "cuMemcpyDtoH_v2": CallCopy, "cudaMemset": CallCopy, "cudaMemcpyAsync": CallOther, "cuMemsetD8Async": CallOther,
		"cudaMalloc": CallAlloc, "cuMemAlloc_v2": CallAlloc, "cudaHostAlloc": CallAlloc, "hipFree": CallAlloc, "cudaMemGetInfo": CallOther,
		"cudaStreamWaitEvent": CallStreamWait, "cudaEventRecord": CallOther,
	} {
		e := Plain(KindRuntime, API(1, 1), name, 0, 1)
		if got := e.Call(); got != want {
			t.Errorf("%s is %d, not %d", name, got, want)
		}
		e.Kind = KindRange // of that name
		if got := e.Call(); got != CallOther {
			t.Errorf("the range %s is %d", name, got)
		}
	}
}

func TestPageable(t *testing.T) {
	for name, want := range map[string][2]bool{"Memcpy HtoD (Pageable -> Device)": {true, true},
		"Memcpy DtoH (Device -> Pinned)": {false, true}, "Memcpy HtoD": {false, false}, "[CUDA memcpy]": {false, false}} {
		e := Plain(KindMemcpy, Stream(1, 0, 1, 7), name, 0, 1)
		if is, known := e.Pageable(); is != want[0] || known != want[1] {
			t.Errorf("%s: %t, %t", name, is, known)
		}
	}
}

// names checks what a function makes of names.
func names(t *testing.T, of func(string) string, wants map[string]string) {
	t.Helper()
	for name, want := range wants {
		if got := of(name); got != want {
			t.Errorf("%.120q is %q, not %q", name, got, want)
		}
	}
}

// TestInAnyLayer folds names of steps, also fused ones that reach into the next layer.
func TestInAnyLayer(t *testing.T) {
	names(t, InAnyLayer, map[string]string{
		"wte+wpe": "wte+wpe", "Layer 3/attn": "Layer N/attn", "h.3.attn.c_attn": "h.N.attn.c_attn", "h.3.ln_2+h.3.mlp.c_fc": "h.N.ln_2+h.N.mlp.c_fc", "h.2@1.attn.sdpa": "h.N.attn.sdpa",
		"h.3.residual_2+h.4.ln_1": "h.N.residual_2+h.(N+1).ln_1", "h.3.residual_2+h.3@4.ln_1": "h.N.residual_2+h.(N+1).ln_1", "h.11.residual_2+ln_f": "h.N.residual_2+ln_f",
	})
}

// TestApplies: the names of a program's elementwise kernels, which begin alike, differ by what they apply.
func TestApplies(t *testing.T) {
	names(t, Applies, map[string]string{
		"void at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<float>, std::array<char *, (unsigned long)3>>(int, T2, T3)":                                                     "add",
		"void at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctorOnSelf_add<float>, std::array<char *, (unsigned long)2>>(int, T2, T3)":                                               "add scalar",
		"void at::native::vectorized_elementwise_kernel<(int)4, at::native::AUnaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float>>, std::array<char *, (unsigned long)2>>(int)": "Mul scalar",
		"void at::native::vectorized_elementwise_kernel<(int)4, at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float>>, std::array<char *, (unsigned long)3>>(int)": "Mul",
		"void at::native::vectorized_elementwise_kernel<(int)4, void at::native::<unnamed>::pow_tensor_scalar_kernel_impl<float, float>(at::TensorIteratorBase &, T2)::[lambda(float) (instance 2)]>(int)":  "pow",
		"void at::native::vectorized_elementwise_kernel<(int)4, at::native::tanh_kernel_cuda(at::TensorIteratorBase &)::[lambda() (instance 2)]>(int, T2, T3)":                                              "tanh",
		"void at::native::vectorized_elementwise_kernel<8, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::{lambda()#1}::operator()() const>":                                "Gelu",
		"void at::native::reduce_kernel<(int)512, (int)1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>, unsigned int, long, (int)4, (int)4>>(T3)":                                               "ArgMax",
		"void at::native::reduce_kernel<(int)512, (int)1, at::native::ReduceOp<float, at::native::func_wrapper_t<float, at::native::MaxNanFunctor<float>>, unsigned int, float, (int)4, (int)4>>(T3)":       "MaxNan",
		"void <unnamed>::elementwise_kernel_with_index<int, at::native::arange_cuda_out(const c10::Scalar &, const c10::Scalar &)::[lambda() (instance 1)]>(T1, T2)":                                        "arange",
		"nvjet_sm90_tst_192x128_64x5_2x1_v_bz_coopB_TNT": "", "void <unnamed>::gemv_kernel<__nv_bfloat16, (int)1>(<unnamed>::gemv_params)": "", "": "", "elementwise_kernel<": "",
	})
}

// TestShortKernel: a table has the name of a kernel without what kernels of one library have in common.
func TestShortKernel(t *testing.T) {
	names(t, ShortKernel, map[string]string{
		"void <unnamed>::gemv_kernel<float, 8>(float*)": "gemv_kernel",
		"(anonymous namespace)::sample(int)":            "sample",
		"nvjet_hsh_64x8":                                "nvjet_hsh_64x8",
		"<odd":                                          "<odd",
		"":                                              "",
		"void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_align1>(T1::Params)":                                                                          "cutlass_80_tensorop_bf16_s16816gemm_align1",
		"void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)":                                                            "at::native::vectorized_elementwise_kernel (add)",
		"void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda(int)::{lambda(float)#1}>(int)>(int)": "at::native::elementwise_kernel (direct_copy)",
	})
}

// TestInside: what SMs did inside a kernel is read as it was written; what cannot be of the event is left out.
func TestInside(t *testing.T) {
	e := Plain(KindKernel, Stream(1, 0, 1, 7), "decode_kernel (Linear)", 1000, 100)
	e.Inside = &Inside{Parts{10, 20, 60, 10}, 2, []Parts{{5, 15, 80, 0}, {}, {15, 25, 40, 20}}}
	var b bytes.Buffer
	require.NoError(t, Write(&b, "", &Header{Process: 1}, []Event{e}))
	read := func(text string) *Inside {
		t.Helper()
		_, events, err := Read(strings.NewReader(text))
		require.NoError(t, err)
		if len(events) != 1 || events[0].Duration != 100 {
			t.Fatalf("%d events: %+v", len(events), events)
		}
		return events[0].Inside
	}
	if got := read(b.String()); !reflect.DeepEqual(got, e.Inside) {
		t.Errorf("%+v became %+v", e.Inside, got)
	}
	for was, is := range map[string]string{
		`"weights":10`:      `"weights":11`,
		`"compute":60`:      `"compute":-60`,
		`"sms":2`:           `"sms":0`,
		`"inputs":20`:       `"inputs":9223372036854775807`,
		`[5,15,80,0,`:       `[5,15,80,1,`,
		`"each":[`:          `"each":[` + strings.Repeat("0,", 4*maxSMs),
		`"inside":{"sms":2`: `"inside":7,"x":{"sms":2`,
	} {
		changed := strings.Replace(b.String(), was, is, 1)
		if changed == b.String() {
			t.Fatalf("the file has no %s: %s", was, b.String())
		}
		if got := read(changed); got != nil {
			t.Errorf("%s in place of %s: %+v", is[:min(40, len(is))], was, got)
		}
	}
}

// TestInsideFit: parts that rounding made differ from a duration sum to it.
func TestInsideFit(t *testing.T) {
	in := Inside{Parts{3, 50, 4, 5}, 2, []Parts{{1, 2, 3, 60}, {}}}
	in.Fit(64)
	if want := (Inside{Parts{3, 52, 4, 5}, 2, []Parts{{1, 2, 3, 58}, {}}}); !reflect.DeepEqual(in, want) {
		t.Errorf("%+v, want %+v", in, want)
	}
}
