package energy

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// RAPL counts the energy of processor packages, by Linux' powercap interface to the
// running average power limits of Intel and AMD.
//
// A package is the cores, caches and memory controllers of a socket. Its energy is that of
// all programs, without memory, disks, fans and power supply.
type RAPL struct{ zones []zone }

// zone is a package: its counter in microjoules, which begins again at 0 after its limit.
type zone struct {
	path        string
	last, wraps uint64
	limit       uint64 // 0 where not known
	read        bool
}

// OpenRAPL finds the counters of all packages. An error says what is missing.
func OpenRAPL() (*RAPL, error) { return openRAPL("/sys/class/powercap") }

func openRAPL(root string) (*RAPL, error) {
	folders, _ := filepath.Glob(filepath.Join(root, "intel-rapl:*"))
	r := &RAPL{}
	for _, folder := range folders {
		if strings.Count(filepath.Base(folder), ":") != 1 { // a part of a package
			continue
		}
		if name, _ := os.ReadFile(filepath.Join(folder, "name")); !strings.HasPrefix(string(name), "package") {
			continue // such as the whole machine, in which packages would count twice
		}
		z := zone{path: filepath.Join(folder, "energy_uj")}
		z.limit, _ = readNumber(filepath.Join(folder, "max_energy_range_uj"))
		if _, err := readNumber(z.path); errors.Is(err, fs.ErrPermission) {
			return nil, fmt.Errorf("the processor's energy counter %s may be read by root only: run as root, or change its "+
				"permissions", z.path)
		} else if err != nil {
			return nil, fmt.Errorf("the processor's energy counter cannot be read: %w", err)
		}
		r.zones = append(r.zones, z)
	}
	if len(r.zones) == 0 {
		return nil, fmt.Errorf("there is no energy counter of the processor (RAPL, in %s): virtual machines and containers "+
			"often hide it", root)
	}
	return r, nil
}

func readNumber(path string) (uint64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(string(bytes.TrimSpace(data)), 10, 64)
}

// Source returns what counts.
func (r *RAPL) Source() string {
	if len(r.zones) == 1 {
		return "RAPL counter of the processor package"
	}
	return fmt.Sprintf("RAPL counters of %d processor packages", len(r.zones))
}

// Covers describes what the energy is of.
func (r *RAPL) Covers() string {
	return "all that runs on the processor package, its caches and memory controllers, without memory"
}

// Read returns the millijoules of all packages since their counters were last 0.
func (r *RAPL) Read() (float64, error) {
	sum := 0.0
	for i := range r.zones {
		z := &r.zones[i]
		v, err := readNumber(z.path)
		if err != nil {
			return 0, fmt.Errorf("the processor's energy counter cannot be read: %w", err)
		}
		if z.read && v < z.last {
			z.wraps++
		}
		z.last, z.read = v, true
		sum += float64(z.wraps)*float64(z.limit) + float64(v)
	}
	return sum / 1000, nil
}
