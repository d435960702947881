package exec

import (
	"runtime"
	"syscall"
	"testing"
)

// A thread that waits for a token keeps its core: were it to yield, the scheduler of Go would wake another thread for it to be woken again,
// again and again, on cores that the CPU's threads use.
func TestAwaitKeepsItsThread(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	stream := stubStream(t)
	g := ring{batch: 1}
	if err := g.allocate(stream.Device()); err != nil {
		t.Fatal(err)
	}
	defer g.slots.Free()
	switches := func() int64 {
		const thread = 1 // RUSAGE_THREAD
		var u syscall.Rusage
		if err := syscall.Getrusage(thread, &u); err != nil {
			t.Fatal(err)
		}
		return u.Nvcsw
	}
	before := switches()
	for range 10 {
		if err := g.await(t.Context(), stream, 0); err == nil { // after a millisecond, since nothing was launched
			t.Fatal("no error, and no token")
		}
	}
	if n := switches() - before; n > 30 {
		t.Errorf("10 ms of waiting took %d switches to another thread; expected 30 at most", n)
	}
}
