package judge

import (
	"strconv"
	"strings"

	"gpt2scope/internal/lazyregexp"
	"gpt2scope/traces"
)

// What a kernel of a library does is known only by its name.

var (
	productName = lazyregexp.New(`(?i)gemm|gemv|nvjet|cutlass.*tensorop`)
	alignment   = lazyregexp.New(`(?i)(?:_|\b)align[abc]?(\d+)(?:_|\b|$)`)
	halfName    = lazyregexp.New(`(?i)bf16|f16|s16816|h16816|h1688|half|bfloat16|_hh|_bb`)
	float32Name = lazyregexp.New(`(?i)(?:\b|_)sgem[mv]|simt_s|_ffma|f32f32_f32f32_f32|gemv\w*<(?:\w+, )*?float, float, float\b`)
	tensorName  = lazyregexp.New(`(?i)tf32|tensorop|s1688|s16816|hmma|wgmma|gmma|nvjet|3xtf32|bf16`)
	elementwise = lazyregexp.New(`elementwise_kernel`)
	attention   = lazyregexp.New(`(?i)flash|fmha|_sdpa_`)
	amd         = lazyregexp.New(`(?i)\bAMD\b|\bMI\d{2,3}[A-Z]?\b|radeon|^gfx`)
)

// unaligned reports whether the name of a product says that it reads its operands in parts
// smaller than 16 bytes, because a dimension is not divisible.
func unaligned(name string) bool {
	if !productName().MatchString(name) || strings.Contains(name, "simt") || strings.Contains(name, "ffma") {
		return false
	}
	size := 4
	if halfName().MatchString(name) {
		size = 2
	}
	for _, m := range alignment().FindAllStringSubmatch(name, -1) {
		if n, err := strconv.Atoi(m[1]); err == nil && n*size < wholeAccess {
			return true
		}
	}
	return false
}

// onTensorCores reports whether the name of a kernel says that it multiplies on tensor cores: few warps keep them busy.
func onTensorCores(name string) bool {
	return (tensorName().MatchString(name) || attention().MatchString(name)) && !float32Name().MatchString(name)
}

// isAMD reports whether a GPU is one of AMD, as far as its name tells.
func isAMD(d *traces.Device) bool { return amd().MatchString(d.Name) || amd().MatchString(d.Compute) }

// withoutTensorCores reports whether the name of a product says that it multiplies in float32 without tensor cores.
func withoutTensorCores(name string) bool {
	return float32Name().MatchString(name) && !tensorName().MatchString(name)
}
