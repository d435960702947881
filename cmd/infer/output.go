package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"gpt2scope/internal/humanize"
	"gpt2scope/weights"
)

// checkOut refuses a missing --out, and the name of a file that is read.
func checkOut(out, extension string, reads ...string) error {
	if out == "" {
		return usagef("give the file to write: --out FILE%s", extension)
	}
	return checkSame("--out", out, reads...)
}

// checkSame refuses a file to write that is one of those that are read, or in one of the
// directories that are read, or that is a directory itself.
func checkSame(flag, path string, reads ...string) error {
	if err := weights.CheckOutput(path, reads...); err != nil {
		return fmt.Errorf("%s %w", flag, err)
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("%s %s: it is a directory; give the name of a file", flag, shellQuote(path))
	}
	return nil
}

// checkWritable says, before a long run, that a file could not be written, or would replace something that is read.
func checkWritable(flag, path string, reads ...string) error {
	if err := checkSame(flag, path, reads...); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".gpt2scope-*")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s %s: cannot be written: there is no directory %s", flag, shellQuote(path), shellQuote(filepath.Dir(path)))
	case err != nil:
		return fmt.Errorf("%s %s: cannot be written: %w", flag, shellQuote(path), humanize.Cause(err))
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// writeFile replaces a file as a whole or not at all; - is standard output.
func writeFile(ctx context.Context, path string, write func(io.Writer) error) error {
	if path == "-" {
		path = "/dev/stdout"
	}
	return weights.WriteFile(ctx, path, write)
}

// addFormat adds the flags of a command that prints in one of several formats; --json is short for
// --format json, as all commands have it.
func addFormat(f *pflag.FlagSet, format *string, formats string) {
	f.StringVar(format, "format", "table", "`FORMAT`: "+formats)
	f.BoolFunc("json", "print one JSON object: the same as --format json", func(value string) error {
		if on, err := strconv.ParseBool(value); err != nil {
			return err
		} else if on {
			*format = "json"
		}
		return nil
	})
}

// writeOutput writes to standard output; its error names that.
func writeOutput(w io.Writer, data []byte) error {
	if _, err := w.Write(data); err != nil {
		return fmt.Errorf("cannot write to standard output: %w", humanize.Cause(err))
	}
	return nil
}

// writeJSON writes one value as indented JSON.
func writeJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return err
	}
	return writeOutput(w, b.Bytes())
}

// number is a float64 that JSON writes as null if it is not finite.
type number float64

// MarshalJSON implements json.Marshaler.
func (n number) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(n)) || math.IsInf(float64(n), 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// ms returns a duration in milliseconds.
func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// perSecond returns a rate, 0 if no time passed.
func perSecond(n float64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return n / d.Seconds()
}

// count writes a number of things: "1 token", "2 tokens".
func count(n int, thing string) string { return humanize.Count(n, thing, thing+"s") }
