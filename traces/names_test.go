package traces

import "testing"

// TestCall: what API calls do, by the names that the CUDA runtime and driver have for them.
func TestCall(t *testing.T) {
	for name, want := range map[string]Call{
		"cudaLaunchKernel": CallLaunch, "cuLaunchKernelEx": CallLaunch, "cudaLaunchCooperativeKernel": CallLaunch, "cudaLaunchKernelExC_v11060": CallLaunch,
		"cudaGraphLaunch": CallGraphLaunch, "cuGraphLaunch": CallGraphLaunch,
		"cudaStreamBeginCapture": CallBeginCapture, "cudaStreamEndCapture": CallEndCapture,
		"cuModuleLoadData": CallLoad, "cuLibraryLoadData": CallLoad,
		"cudaStreamSynchronize": CallSync, "cudaDeviceSynchronize": CallSync, "cudaEventSynchronize": CallSync,
		"cudaMemcpy": CallCopy, "cuMemcpyDtoH_v2": CallCopy, "cudaMemset": CallCopy, "cudaMemcpyAsync": CallOther, "cuMemsetD8Async": CallOther,
		"cudaMalloc": CallOther, "cudaEventRecord": CallOther,
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
	for name, want := range map[string][2]bool{"Memcpy HtoD (Pageable -> Device)": {true, true}, "Memcpy DtoH (Device -> Pinned)": {false, true}, "Memcpy HtoD": {false, false}, "[CUDA memcpy]": {false, false}} {
		e := Plain(KindMemcpy, Stream(1, 0, 1, 7), name, 0, 1)
		if is, known := e.Pageable(); is != want[0] || known != want[1] {
			t.Errorf("%s: %t, %t", name, is, known)
		}
	}
}

// TestInAnyLayer folds names of steps, also fused ones that reach into the next layer.
func TestInAnyLayer(t *testing.T) {
	for name, want := range map[string]string{
		"wte+wpe": "wte+wpe", "h.3.attn.c_attn": "h.N.attn.c_attn", "h.3.ln_2+h.3.mlp.c_fc": "h.N.ln_2+h.N.mlp.c_fc", "h.2@1.attn.sdpa": "h.N.attn.sdpa",
		"h.3.residual_2+h.4.ln_1": "h.N.residual_2+h.(N+1).ln_1", "h.3.residual_2+h.3@4.ln_1": "h.N.residual_2+h.(N+1).ln_1", "h.11.residual_2+ln_f": "h.N.residual_2+ln_f",
	} {
		if got := InAnyLayer(name); got != want {
			t.Errorf("%s is %s, not %s", name, got, want)
		}
	}
}
