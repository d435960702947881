package learn

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"gpt2scope/cpu"
	"gpt2scope/cuda"
	"gpt2scope/internal/files"
	"gpt2scope/traces"
)

// recordingVersion is that of the format of recordings.
const recordingVersion = 1

// Recording is the data of experiments that ran on a machine. It holds no verdicts.
type Recording struct {
	Version int       `json:"version"`
	Created time.Time `json:"created"`
	Machine Machine   `json:"machine"`
	// The data of experiments, by the number of a lesson and the device.
	Lessons map[int]map[string]Data `json:"lessons"`
}

// Machine is where experiments ran.
type Machine struct {
	CPU     string `json:"cpu"`
	Threads int    `json:"threads"` // that the process may use
	GPU     string `json:"gpu,omitempty"`
	Driver  string `json:"driver_cuda,omitempty"`  // the newest CUDA that the driver supports
	CUDA    string `json:"library_cuda,omitempty"` // the one that the library was built with
}

// FindMachine describes this machine.
func FindMachine(dev *cuda.Device) Machine {
	f, _ := cpu.DetectFeatures()
	m := Machine{CPU: cmp.Or(f.Processor, "a CPU without a name"), Threads: cpu.Threads(0)}
	if dev != nil {
		m.GPU = dev.Info().Name
		driver, runtime := dev.Library().Versions()
		m.Driver, m.CUDA = cuda.VersionText(driver), cuda.VersionText(runtime)
	}
	return m
}

func (m Machine) name(device string) string {
	if device == OnGPU {
		return m.GPU
	}
	return fmt.Sprintf("%s, %s", m.CPU, countOf(m.Threads, "thread"))
}

// Add adds what was measured now for a result.
func (r *Recording) Add(of Result) {
	for _, p := range of.Parts {
		if p.Recorded != "" || p.Of != "" || len(p.Data) == 0 {
			continue
		}
		if r.Lessons == nil {
			r.Version, r.Lessons = recordingVersion, map[int]map[string]Data{}
		}
		if r.Lessons[of.Number] == nil {
			r.Lessons[of.Number] = map[string]Data{}
		}
		r.Lessons[of.Number][p.Device] = p.Data
	}
}

// part is what the recording says about a lesson.
func (r *Recording) part(l *Lesson, device string) Part {
	x := l.experiment(device)
	if x.Of != "" { // which measures nothing
		if data, err := measure(context.Background(), &Env{}, x.Run); err == nil {
			return x.part(device, data)
		}
	}
	var data Data
	if r != nil {
		data = r.Lessons[cmp.Or(l.DataOf, l.Number)][device]
	}
	if len(data) == 0 {
		return Part{Device: device, Finding: undecided("There is no recording of this experiment.")}
	}
	p := x.part(device, data)
	p.Recorded, p.Machine = r.Created.Format(time.DateOnly), r.Machine.name(device)
	return p
}

// Write writes the recording as JSON, compressed.
func (r *Recording) Write(w io.Writer) error {
	z := gzip.NewWriter(w)
	return errors.Join(json.NewEncoder(z).Encode(r), z.Close())
}

// maxRecording bounds the memory that reading a recording takes.
const maxRecording = 64 << 20

// ReadFile reads the recording in a file, unless the context ends first: a pipe may be silent.
func ReadFile(ctx context.Context, path string) (*Recording, error) {
	f, err := files.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadRecording(f)
}

// ReadRecording reads a recording, compressed or not.
func ReadRecording(from io.Reader) (*Recording, error) {
	text, err := traces.Uncompressed(from)
	r := new(Recording)
	if err == nil {
		err = json.NewDecoder(io.LimitReader(text, maxRecording)).Decode(r)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("it is not a recording of lessons, or not a whole one: %w", err)
	case r.Version != recordingVersion:
		return nil, fmt.Errorf("it is a recording of version %d, expected %d", r.Version, recordingVersion)
	case r.Lessons == nil:
		return nil, errors.New("it has no lessons")
	}
	return r, nil
}

//go:embed samples/h200.json.gz
var shipped []byte

// Shipped returns the recording that is part of the program.
func Shipped() (*Recording, error) { return ReadRecording(bytes.NewReader(shipped)) }
