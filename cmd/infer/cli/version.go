package cli

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// What 'make build' passes to the linker: the commit, which ends in -dirty if files differed from it, and the time, as
// in RFC 3339. 'go build' records the commit itself.
var Commit, Built string

// BuildInfo says which build of the program this is.
type BuildInfo struct {
	Version    string `json:"version"`               // of the module
	Commit     string `json:"commit,omitempty"`      // in full
	Modified   bool   `json:"modified"`              // files differed from the commit
	CommitTime string `json:"commit_time,omitempty"` // RFC 3339
	Built      string `json:"built,omitempty"`       // RFC 3339
	Go         string `json:"go"`
	Platform   string `json:"platform"`
}

func ThisBuild() BuildInfo {
	b := BuildInfo{Version: "(devel)", Built: Built, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.Version = cmp.Or(info.Main.Version, b.Version)
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Commit = s.Value
			case "vcs.time":
				b.CommitTime = s.Value
			case "vcs.modified":
				b.Modified = s.Value == "true"
			}
		}
	}
	if Commit != "" {
		name, dirty := strings.CutSuffix(Commit, "-dirty")
		if b.Commit != name {
			b.CommitTime = ""
		}
		b.Commit, b.Modified = name, dirty
	}
	return b
}

// Version names this build in one line, for recordings and results. It does not have the time of the build: two builds
// of a commit give the same results.
func Version() string {
	b := ThisBuild()
	v := b.Version
	if b.Commit != "" {
		v = "commit " + b.Commit[:min(12, len(b.Commit))]
		if b.Modified {
			v += " modified"
		}
		if b.Version != "(devel)" && !strings.HasPrefix(b.Version, "v0.0.0-") { // which names the commit too
			v = b.Version + " " + v
		}
	}
	return fmt.Sprintf("%s %s %s", v, b.Go, b.Platform)
}
