package cpu

import (
	"cmp"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// physicalCores counts the cores that the process may run on, not their hardware threads: two threads of a core share
// the units that the kernels keep busy.
func physicalCores() int {
	cores := map[string]bool{}
	for _, cpu := range allowedCPUs() {
		siblings, err := os.ReadFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu))
		if err != nil {
			return runtime.NumCPU()
		}
		cores[string(siblings)] = true
	}
	return cmp.Or(len(cores), runtime.NumCPU())
}

// allowedCPUs lists the processors that the process may run on.
func allowedCPUs() []int {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return nil
	}
	var list []int
	for cpu, all := 0, allowed.Count(); len(list) < all && cpu < 8*len(allowed)*8; cpu++ {
		if allowed.IsSet(cpu) {
			list = append(list, cpu)
		}
	}
	return list
}
