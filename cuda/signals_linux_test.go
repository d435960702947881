package cuda_test

import (
	"os"
	"os/signal"
	"syscall"
	"testing"
	"unsafe"

	"gpt2scope/internal/require"
	"gpt2scope/internal/stub"
)

// handler is a signal's handler and its flags, as the kernel has them.
func handler(t *testing.T, s syscall.Signal) (function, flags uintptr) {
	t.Helper()
	var action struct{ function, flags, restorer, mask uintptr }
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(s), 0, uintptr(unsafe.Pointer(&action)), 8, 0, 0); errno != 0 {
		t.Fatal(errno)
	}
	return action.function, action.flags
}

// The stub takes signals while it compiles, as NVRTC does.
func TestCompileKeepsSignals(t *testing.T) {
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	signals := []syscall.Signal{syscall.SIGINT, syscall.SIGTERM}
	compile := func(defines ...string) {
		_, dev, _ := openStub(t, defines...)
		stub.NVRTC(t)
		m := require.Value(dev.Compile("a.cu", `extern "C" __global__ void add() {}`))(t)
		must(t, m.Free())
	}
	type action struct{ function, flags uintptr }
	before := map[syscall.Signal]action{}
	for _, s := range signals {
		f, flags := handler(t, s)
		before[s] = action{f, flags}
	}
	t.Run("after", func(t *testing.T) {
		compile()
		for _, s := range signals {
			if f, flags := handler(t, s); (action{f, flags}) != before[s] {
				t.Errorf("the handler of %v is %#x with flags %#x after Compile, and was %#x with flags %#x", s, f, flags, before[s].function, before[s].flags)
			}
		}
	})
	t.Run("during", func(t *testing.T) { // where the signal is lost, the stub ends this process with status 4
		compile("STUB_INTERRUPTED")
		<-interrupts
	})
}
