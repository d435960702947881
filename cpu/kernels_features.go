package cpu

import (
	"bufio"
	"os"
	"runtime"
	"strings"
)

// Features tells what the fast kernels found on this machine.
type Features struct {
	Processor  string   // the processor's name, "" where the system does not tell
	Extensions []string // of its instruction set, those that matter to matrix products, in the system's spelling
	Versions   []string // kernel versions that run here, slowest first
	Version    string   // the one in use: the last, or what GPT2SCOPE_CPU names
	Q8         string   // by which instructions it multiplies 8-bit weights in a decode step
}

// DetectFeatures looks at the processor and at the environment variable GPT2SCOPE_CPU, which forces a version of the kernels. The
// error says so when the variable names one that does not run here; the other fields are then still filled.
func DetectFeatures() (Features, error) {
	var f Features
	for _, i := range supportedISAs() {
		f.Versions = append(f.Versions, i.String())
	}
	f.Processor, f.Extensions = processor()
	i, err := chooseISA(os.Getenv("GPT2SCOPE_CPU"))
	if err != nil {
		return f, err
	}
	f.Version, f.Q8 = i.String(), q8Products[i]
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
}

// processor reads the name and extensions from /proc/cpuinfo, where that is.
func processor() (name string, extensions []string) {
	file, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "", nil
	}
	defer file.Close()
	interesting := map[string]bool{"avx": true, "fma": true, "avx2": true, "avx512f": true, "avx512bw": true, "avx512dq": true, "avx512vl": true,
		"avx512_vnni": true, "avx_vnni": true, "avx512_bf16": true, "avx512_fp16": true, "amx_bf16": true, "amx_int8": true,
		"asimd": true, "asimddp": true, "bf16": true, "i8mm": true, "sve": true, "sve2": true}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "model name", "CPU": // the second on some Arm boards
			if name == "" {
				name = value
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
	if name == "" {
		name = runtime.GOARCH
	}
	return name, extensions
}
