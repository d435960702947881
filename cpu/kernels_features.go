package cpu

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
)

// Features tells what the fast kernels found on this machine.
type Features struct {
	Processor  string   `json:"name"`                     // "" if the system does not report it
	Model      string   `json:"model,omitempty"`          // family and model, by which processors of one name differ
	Extensions []string `json:"extensions"`               // of the instruction set, those that matter to matrix products
	Versions   []string `json:"kernels"`                  // versions that run here, slowest first
	Version    string   `json:"kernels_in_use,omitempty"` // the last, or what GPT2SCOPE_CPU names
	Q8         string   `json:"q8_products,omitempty"`    // by which instructions 8-bit weights are multiplied
	Q8Widened  bool     `json:"q8_widened,omitempty"`     // to float32, for products of many rows
	F32        string   `json:"f32_products,omitempty"`   // how float32 weights are multiplied with many rows
	BF16       string   `json:"bf16_products,omitempty"`  // how weights held as bfloat16 are multiplied with many rows
}

// DetectFeatures looks at the processor and at the environment variable GPT2SCOPE_CPU, which forces a version of the
// kernels. The error says so when the variable names one that does not run here; the other fields are then still
// filled.
func DetectFeatures() (Features, error) {
	var f Features
	f.Versions = ISAs()
	f.Processor, f.Model, f.Extensions = processor()
	i, err := chooseISA(os.Getenv("GPT2SCOPE_CPU"))
	if err != nil {
		return f, err
	}
	f.Version, f.F32, f.BF16, f.Q8 = i.String(), "multiply-adds", bf16Path(i, f.Extensions), q8Products[i]
	f.Q8Widened = !i.multipliesBytes()
	if i == amx {
		f.F32 = fmt.Sprintf("AMX tiles (TDPBF16PS) from %d rows on, each number as the sum of three bfloat16 numbers",
			splitRows)
	}
	return f, nil
}

// q8Products names what DOT of q8_gemv.h is in each version.
var q8Products = map[isa]string{
	portable:   "PMADDWD, or plain C",
	neon:       "SMULL",
	neonDot:    "SDOT",
	avx2:       "VPMADDWD, 256 bits",
	avx2VNNI:   "VPDPBUSD, 256 bits",
	avx512:     "VPMADDWD, 512 bits",
	avx512VNNI: "VPDPBUSD, 512 bits",
	avx512BF16: "VPDPBUSD, 512 bits",
	amx:        "AMX tiles (TDPBSSD); VPDPBUSD, 512 bits, for a few rows",
}

// bf16Path says how a version multiplies bfloat16, and why it does not use what the processor has.
func bf16Path(i isa, extensions []string) string {
	paths := map[isa]string{amx: "AMX tiles (TDPBF16PS)", avx512BF16: "AVX-512 dot products (VDPBF16PS)"}
	path := cmp.Or(paths[i], "widened to float32")
	has := func(e string) bool { return slices.Contains(extensions, e) }
	switch {
	case i == amx:
	case !has("amx_bf16") && !has("avx512_bf16") && i != avx512BF16:
		path += ", as the processor has neither amx_bf16 nor avx512_bf16"
	case has("amx_bf16") && isaRuns(amx):
		path += fmt.Sprintf(", by kernels %s; kernels amx would use AMX tiles", i)
	case has("amx_bf16") && refusedAMX() != nil:
		path += fmt.Sprintf(", as the system refuses AMX tiles (%v)", refusedAMX())
	case has("avx512_bf16") && i != avx512BF16 && isaRuns(avx512BF16):
		path += fmt.Sprintf(", by kernels %s; kernels avx512-bf16 would use dot products", i)
	}
	return path
}

// processor reads name, model and extensions from /proc/cpuinfo, if there is one.
func processor() (name, model string, extensions []string) {
	file, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "", "", nil
	}
	defer file.Close()
	return parseCPUInfo(file)
}

// parseCPUInfo reads what the first processor of /proc/cpuinfo is.
func parseCPUInfo(r io.Reader) (name, model string, extensions []string) {
	interesting := map[string]bool{"avx": true, "fma": true, "avx2": true, "avx512f": true, "avx512bw": true,
		"avx512dq": true, "avx512vl": true,
		"avx512_vnni": true, "avx_vnni": true, "avx512_bf16": true, "avx512_fp16": true, "amx_bf16": true, "amx_int8": true,
		"asimd": true, "asimddp": true, "bf16": true, "i8mm": true, "sve": true, "sve2": true}
	family := ""
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() && (extensions == nil || lines.Text() != "") { // an empty line ends a processor
		key, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "model name", "CPU": // the second on some Arm boards
			if name == "" {
				name = value
			}
		case "cpu family":
			family = value
		case "model":
			if model == "" && family != "" {
				model = fmt.Sprintf("family %s, model %s", family, value)
			}
		case "flags", "Features":
			if extensions == nil {
				for _, e := range strings.Fields(value) {
					if interesting[e] {
						extensions = append(extensions, e)
					}
				}
			}
		}
	}
	return cmp.Or(name, runtime.GOARCH), model, extensions
}
