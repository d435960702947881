package dispatch

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"gpt2scope/tasks"
)

// Injected is load that is put on a device in the middle of a stream, to see how soon the scheduler finds it.
type Injected struct {
	Device string
	Share  float64 // of the device: of the CPU's cores that others keep busy, of the time in which others' kernels run on a GPU
}

// ParseInjected reads "cpu:50" or "cuda:0:50", with the share in percent.
func ParseInjected(text string) (Injected, error) {
	at := strings.LastIndex(text, ":")
	if at < 0 {
		return Injected{}, fmt.Errorf("%q is not a device and percents, such as cpu:50 or cuda:0:100", text)
	}
	percent, err := strconv.ParseFloat(text[at+1:], 64)
	if err != nil || !(percent > 0 && percent <= 100) {
		return Injected{}, fmt.Errorf("%q is not a share in percent, of more than 0 and at most 100", text[at+1:])
	}
	return Injected{text[:at], percent / 100}, nil
}

// String writes it as [ParseInjected] reads it.
func (i Injected) String() string { return fmt.Sprintf("%s:%g", i.Device, 100*i.Share) }

// After returns how many jobs of a stream end before load is injected.
func (Injected) After(jobs int) int { return max(1, jobs/3) }

// Inject adds load to a simulation: the device takes longer by the share.
func (m *Simulation) Inject(i Injected) error {
	d, err := i.Index(m.Devices)
	if err == nil {
		m.Loads = append(m.Loads, Load{Device: d, After: i.After(len(m.Jobs)), Factor: 1 + i.Share})
	}
	return err
}

// Index returns which of the devices the load is put on.
func (i Injected) Index(devices []Device) (int, error) {
	var names []string
	for d, device := range devices {
		if device.Name == i.Device {
			return d, nil
		}
		names = append(names, device.Name)
	}
	return 0, fmt.Errorf("there is no device %s; devices are %s", i.Device, strings.Join(names, ", "))
}

// injector puts load on a device when begin is called, until end is.
type injector struct {
	begin func()
	end   func() error
}

// ready makes the load ready.
func (i Injected) ready(ctx context.Context, m *tasks.Machine) (*injector, error) {
	if i.Device == tasks.CPU {
		return busyCPU(max(1, int(math.Round(i.Share*float64(runtime.NumCPU()))))), nil
	}
	product := tasks.Shape{{Name: "m", Value: loadSize}, {Name: "n", Value: loadSize}, {Name: "k", Value: loadSize}}
	return busyGPU(ctx, m, i.Device, i.Share, "matmul", product)
}

// spin keeps a core busy until the process that started it is gone.
const spin = "while kill -0 $PPID 2>/dev/null; do i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; done"

// busyCPU keeps so many cores busy, each with a process.
func busyCPU(cores int) *injector {
	var all []*exec.Cmd
	var failed error
	return &injector{
		begin: func() {
			for range cores {
				c := exec.Command("/bin/sh", "-c", spin)
				if err := c.Start(); err != nil {
					failed = fmt.Errorf("no load can be put on the CPU: %w", err)
					return
				}
				all = append(all, c)
			}
		},
		end: func() error {
			for _, c := range all {
				c.Process.Kill()
				c.Wait() // it was killed
			}
			return failed
		},
	}
}

// loadSize is of the products that keep a GPU busy: some hundred us each.
const loadSize = 2048

// busyGPU does a task on a GPU again and again, in a share of the time.
func busyGPU(ctx context.Context, m *tasks.Machine, device string, share float64, name string, shape tasks.Shape) (*injector, error) {
	found, err := tasks.Find(tasks.All(), []string{name})
	if err != nil {
		return nil, err
	}
	run, end, err := m.Again(ctx, found[0], shape, tasks.Float32, device, tasks.MemoryResident)
	if err != nil {
		return nil, fmt.Errorf("no load can be put on %s: %w", device, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var began atomic.Bool
	ended := make(chan error, 1)
	return &injector{
		begin: func() {
			began.Store(true)
			go locked(func() {
				for ctx.Err() == nil {
					start := time.Now()
					if _, err := run(ctx); err != nil {
						ended <- fmt.Errorf("the load on %s: %w", device, err)
						return
					}
					time.Sleep(time.Duration(float64(time.Since(start)) * (1 - share) / share))
				}
				ended <- nil
			})
		},
		end: func() (err error) {
			cancel()
			if began.Load() {
				err = <-ended
			}
			return errors.Join(err, end())
		},
	}, nil
}
