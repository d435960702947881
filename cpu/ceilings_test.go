package cpu

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"gpt2scope/ceilings"
)

// tree writes files under a folder.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o777))
		must(t, os.WriteFile(path, []byte(text), 0o666))
	}
	return root
}

// Two cores with caches of their own, one shared by both, and files that are damaged.
func TestCaches(t *testing.T) {
	files := map[string]string{}
	for cpu, own := range []string{"0", "1"} {
		for i, c := range [][4]string{{"1", "Data", "48K", own}, {"1", "Instruction", "64K", own},
			{"2", "Unified", "2048K", own}, {"3", "Unified", "30M", "0-1"},
			{"-1", "Unified", "1K", own}, {"4", "Unified", "99999999999G", own}, {"5", "Unified", "much", own}} {
			folder := filepath.Join("devices/system/cpu", []string{"cpu0", "cpu1"}[cpu], "cache", "index"+string(rune('0'+i)))
			for n, name := range []string{"level", "type", "size", "shared_cpu_list"} {
				files[filepath.Join(folder, name)] = c[n] + "\n"
			}
		}
	}
	root := tree(t, files)
	for _, c := range []struct {
		cpus    []int
		threads int
		want    []Cache
	}{
		{[]int{0, 1}, 2, []Cache{{1, 96 << 10}, {2, 4 << 20}, {3, 30 << 20}}},
		{[]int{0, 1}, 1, []Cache{{1, 48 << 10}, {2, 2 << 20}, {3, 30 << 20}}},
		{[]int{1}, 8, []Cache{{1, 48 << 10}, {2, 2 << 20}, {3, 30 << 20}}},
		{[]int{7}, 1, nil},
		{nil, 1, nil},
	} {
		if got := caches(root, c.cpus, c.threads); !reflect.DeepEqual(got, c.want) {
			t.Errorf("of %v, %d threads: %v, want %v", c.cpus, c.threads, got, c.want)
		}
	}
}

func TestReadPoints(t *testing.T) {
	points, err := readPoints([]Cache{{1, 96 << 10}, {2, 4 << 20}, {3, 64 << 20}}, 8<<30, 1)
	want := []readPoint{{"L2 cache", 2 << 20, 4 << 20}, {"L2 cache, in part", 4 << 20, 8 << 20},
		{"L3 cache", 32 << 20, 64 << 20},
		{"L3 cache, in part", 64 << 20, 128 << 20}, {"memory", 256 << 20, 0}}
	if err != nil || !reflect.DeepEqual(points, want) {
		t.Errorf("%v, %v; want %v", points, err, want)
	}
	if points, err := readPoints(nil, 0, 1<<30); err != nil || !reflect.DeepEqual(points,
		[]readPoint{{"memory", 1 << 30, 0}}) {
		t.Errorf("with nothing known: %v, %v", points, err)
	}
	if _, err := readPoints([]Cache{{2, 4 << 20}, {3, 64 << 20}}, 256<<20, 1); err == nil {
		t.Error("64 MiB do not tell memory from a cache of 64 MiB")
	}
}

// Ceilings are rates that can be, on small caches that are made up.
func TestCeilings(t *testing.T) {
	p := testPool(t, 2, supportedISAs()[len(supportedISAs())-1])
	effort := measureEffort{rounds: ceilings.Rounds{Least: 1, Most: 1}, round: time.Microsecond}
	values, share, err := p.ceilings(context.Background(), []Cache{{1, 64 << 10}, {2, 1 << 20}}, 32<<20, effort)
	must(t, err)
	var names []string
	for i, v := range values {
		names = append(names, v.Name+" "+v.Where+" "+v.Unit)
		if !(v.Value > 0) || v.How == "" {
			t.Errorf("%+v", v)
		}
		if v.Name == ceilings.Read && i > 0 && v.Value > values[i-1].Value {
			t.Errorf("more data is read faster: %+v", values[:i+1])
		}
	}
	want := []string{"read L2 cache GB/s", "read L2 cache, in part GB/s", "read memory GB/s", "copy memory GB/s",
		"f32  TFLOP/s", "bf16  TFLOP/s", "int8  TFLOP/s", "barrier  us"}
	if !p.isa.multipliesBytes() {
		want = slices.Delete(want, 6, 7)
	}
	if !p.isa.multipliesBF16() {
		want = slices.Delete(want, 5, 6)
	}
	if !slices.Equal(names, want) || values[0].Size != 1<<20 || values[2].Size != 0 || !(share > 0 && share < 1.5) {
		t.Errorf("measured %q with a share of %g of the CPU; want %q", names, share, want)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("why")
	cancel(why)
	if _, _, err := p.ceilings(ctx, nil, 0, measureEffort{rounds: ceilings.Rounds{Least: 1, Most: 1},
		memory: 8 << 20}); err != why {
		t.Errorf("cancelled: %v", err)
	}
}

// What measures copies copies: of every two chunks the first to the second, by every version and way.
func TestMeasureCopy(t *testing.T) {
	const chunk = 32768
	for _, isa := range supportedISAs() {
		p := testPool(t, 2, isa)
		m, err := alloc[float32](6*chunk + 100)
		must(t, err)
		defer m.free()
		for _, past := range []bool{true, false} {
			x := m.slice()
			for i := range x {
				x[i] = float32(i)
			}
			if rate := p.measureCopy(past, m); !(rate > 0) {
				t.Errorf("%v, past the caches %v: %g bytes/s", isa, past, rate)
			}
			for i, got := range x {
				want := float32(i)
				if i < 6*chunk && i/chunk%2 == 1 {
					want -= chunk
				}
				if got != want {
					t.Fatalf("%v, past the caches %v: value %d is %g; want %g", isa, past, i, got, want)
				}
			}
		}
	}
}

// The key names processor, threads and kernels.
func TestCeilingsKey(t *testing.T) {
	f, _ := DetectFeatures()
	for threads, want := range map[int]string{1: ", 1 thread, kernels avx2", 3: ", 3 threads, kernels avx2"} {
		if got := CeilingsKey(threads, "avx2"); !strings.HasPrefix(got, f.Processor) || !strings.HasSuffix(got, want) {
			t.Errorf("%q, want the processor's name and %q", got, want)
		}
	}
}
