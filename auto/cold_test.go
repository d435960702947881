package auto

import (
	"encoding/csv"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"gpt2scope/internal/stats"
)

// shape is what a process of bench/auto_cold.py was asked for.
type shape struct{ prompt, tokens, layers int }

func (s shape) run() Run {
	r := shipped(s.layers)
	r.Prompt, r.New = s.prompt, s.tokens
	return r
}

// coldRun is a run of bench/auto_cold.py.
type coldRun struct {
	cpu, gpu Device
	history  History                      // of runs of other shapes
	wall     map[shape]map[string]float64 // ms, medians by the way: "cpu", "cuda"
}

// readCold reads the file that bench/auto_cold.py wrote on an H200.
func readCold(t *testing.T, path string) coldRun {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil || len(rows) < 2 {
		t.Fatalf("%s: %d rows, %v", path, len(rows), err)
	}
	c := coldRun{gpu: h200(), wall: map[shape]map[string]float64{}}
	all := map[shape]map[string][]float64{}
	for _, row := range rows[1:] {
		text := func(column string) string { return row[slices.Index(rows[0], column)] }
		number := func(column string) float64 {
			v, err := strconv.ParseFloat(text(column), 64)
			if err != nil {
				t.Fatalf("%s: %s: %v", path, column, err)
			}
			return v
		}
		s := shape{int(number("prompt")), int(number("tokens")), int(number("layers"))}
		device := &c.gpu
		if text("device") == "cpu" {
			device = &c.cpu
			if c.cpu.Name == "" {
				c.cpu = host()
				c.cpu.Ceilings = CPUCeilings(c.cpu.Name, int(number("threads")), "amx")
			}
		}
		switch way := text("way"); way {
		case "cpu-learning", "cuda-learning":
			took := Times{Open: number("open_ms"), Load: number("load_ms"), Prefill: number("prefill_ms"),
				Decode: number("decode_ms")}
			r := newRecord(device, device.Work(s.run()), took, today)
			c.history.Records = append(c.history.Records, r)
		default:
			if all[s] == nil {
				all[s] = map[string][]float64{}
			}
			all[s][way] = append(all[s][way], number("wall_ms"))
		}
	}
	for s, ways := range all {
		c.wall[s] = map[string]float64{}
		for way, ms := range ways {
			c.wall[s][way] = stats.MedianOf(ms)
		}
	}
	return c
}

// On stored figures of whole cold processes, the device that is chosen is the faster one, or little slower: within 10 %
// in the mean, and 1.3 times in the worst case, over 60 combinations.
func TestColdCombinations(t *testing.T) {
	paths, err := filepath.Glob("../docs/measurements/*-auto-cold*.csv")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no stored figures: %v", err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			c := readCold(t, path)
			if len(c.wall) < 60 || len(c.history.Records) != 16 {
				t.Fatalf("%d combinations, %d earlier runs; want 60 and 16", len(c.wall), len(c.history.Records))
			}
			for name, h := range map[string]*History{
				"with a history of other shapes": &c.history, "without a history": {},
			} {
				sum, worst, toGPU := 0.0, 1.0, 0
				for s, ms := range maps.All(c.wall) {
					choice := h.Choose(s.run(), &c.cpu, &c.gpu, today)
					took := ms["cpu"]
					if choice.GPU {
						took = ms["cuda"]
						toGPU++
					}
					ratio := took / min(ms["cpu"], ms["cuda"])
					if sum += ratio; ratio > worst {
						worst = ratio
					}
				}
				mean := sum / float64(len(c.wall))
				t.Logf("%s: chosen / better device: mean %.3f, worst %.3f; %d of %d on the GPU",
					name, mean, worst, toGPU, len(c.wall))
				if mean > 1.05 || worst > 1.3 {
					t.Errorf("%s: mean %.3f, worst %.3f; want at most 1.05 and 1.3", name, mean, worst)
				}
			}
		})
	}
}
