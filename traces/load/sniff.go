package load

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
)

// headSize is how many bytes of a file decide what it is. nsys and ncu may print lines before
// the header of a CSV.
const headSize = 4096

// nsysTable is the header of a table that nsys stats --format csv writes: names with units.
var nsysTable = regexp.MustCompile(`(?m)^[A-Z][^\n"]*\((ns|MB|%)\),`)

// foreign says what a file is, by its first bytes, if it is of a known kind that is not a
// recording, and what to do instead. It is nil if the file may be a recording.
func (s Source) foreign(head []byte) error {
	path, file := s.Path, s.Path
	if s.Stream != nil { // Path is no file then
		file = "FILE"
	}
	switch first := bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")), " \t\r\n"); {
	case bytes.HasPrefix(head, []byte("NVIDIA Tegra Profiler Report")):
		return fmt.Errorf("%s is a report of Nsight Systems, which only nsys can read: export it with nsys export --type sqlite %s, and give the sqlite file", path, file)
	case bytes.HasPrefix(head, []byte("NVR\x00")):
		return fmt.Errorf("%s is a report of Nsight Compute: it has counters of kernels, but no times of a run; ncu --csv --page details --import %s prints the counters, and nsys makes a recording", path, file)
	case hasLine(head, `"ID","Process ID"`), bytes.HasPrefix(first, []byte("==PROF==")):
		return fmt.Errorf("%s is output of Nsight Compute (ncu --csv --page details or raw): it has counters of kernels, but no times of a run; give a recording, such as the file of nsys export --type sqlite", path)
	case nsysTable.Match(head):
		return fmt.Errorf("%s is a table of nsys stats, not a trace: give the export of the report, nsys export --type sqlite FILE.nsys-rep", path)
	case len(first) == 0 || first[0] == '{' || first[0] == '[' || bytes.HasPrefix(head, []byte("\x1f\x8b")):
		return nil
	}
	text := fmt.Sprintf("%s is not a trace: it is neither JSON (also compressed by gzip) nor an sqlite file", path)
	switch filepath.Ext(path) {
	case ".nsys-rep", ".qdrep":
		text += ", and its content is not that of a report of Nsight Systems, which its name promises: record again, then nsys export --type sqlite FILE"
	case ".ncu-rep":
		text += ", and its content is not that of a report of Nsight Compute, which its name promises: record again, then ncu --csv --page details --import FILE"
	}
	return errors.New(text)
}

// hasLine reports whether a line of the text begins with start.
func hasLine(text []byte, start string) bool {
	return bytes.HasPrefix(text, []byte(start)) || bytes.Contains(text, []byte("\n"+start))
}
