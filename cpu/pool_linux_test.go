package cpu

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// Work that a worker has not begun is done by the others while it has no core, in one pass after another: here its core
// is another program's, which it gives way to. BenchmarkPoolWithoutCore gives the time of 1000 barriers; with a wait
// for the worker it is a second and more.
func TestPoolLeavesWorkerWithoutCore(t *testing.T) { poolWithoutCore(t, 20) }

func BenchmarkPoolWithoutCore(b *testing.B) { poolWithoutCore(b, 20*b.N) }

func poolWithoutCore(t testing.TB, passes int) {
	const n, steps = 64, 50
	allowed := allowedCPUs()
	if len(allowed) < 2 {
		t.Skip("it needs two processors")
	}
	on := func(thread, processor int) {
		t.Helper()
		var set unix.CPUSet
		set.Set(processor)
		must(t, unix.SchedSetaffinity(thread, &set))
	}
	p := testPool(t, 2, portable)
	x, program := counting(t, p, n, steps)
	if done, err := program.run(0, steps, mem[int64]{}); !done || err != nil {
		t.Fatal(done, err)
	}
	p.measureBarrier(1) // which waits for all: the worker has its name
	worker := 0
	names, _ := filepath.Glob("/proc/self/task/*/comm")
	for _, name := range names {
		if text, err := os.ReadFile(name); err == nil && bytes.Equal(text, []byte("gpt2scope-cpu-1\n")) {
			id, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			worker = max(worker, id) // the latest, if another test's is still there
		}
	}
	if worker == 0 {
		t.Fatal("no thread has the name of a worker")
	}
	busy := exec.Command("/bin/sh", "-c", "while :; do :; done")
	must(t, busy.Start())
	defer busy.Wait()
	defer busy.Process.Kill()
	on(busy.Process.Pid, allowed[0])
	on(worker, allowed[0])
	if err := unix.SchedSetAttr(worker, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE},
		0); err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before unix.CPUSet
	must(t, unix.SchedGetaffinity(0, &before))
	defer unix.SchedSetaffinity(0, &before)
	on(0, allowed[1])
	if b, ok := t.(*testing.B); ok {
		b.ResetTimer()
	}
	for range passes {
		if done, err := program.run(0, steps, mem[int64]{}); !done || err != nil {
			t.Fatal(done, err)
		}
	}
	for i, v := range x.slice() {
		if v != float32(steps*(passes+1)) {
			t.Fatalf("x[%d] = %g after %d additions of 1", i, v, steps*(passes+1))
		}
	}
}
