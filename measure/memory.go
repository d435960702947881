package measure

import (
	"fmt"
	"os"
	"strings"
)

// PeakMemory is the most memory that this process used at once, in bytes: VmHWM of
// proc(5). It is 0 if the system does not report it.
func PeakMemory() int64 {
	status, _ := os.ReadFile("/proc/self/status")
	_, rest, _ := strings.Cut(string(status), "\nVmHWM:")
	kB := int64(0)
	fmt.Sscan(rest, &kB)
	return kB << 10
}
