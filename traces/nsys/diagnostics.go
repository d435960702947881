package nsys

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gpt2scope/internal/humanize"
)

// What nsys says of the events of a process, such as "Number of CUDA events collected: 28804."
// and "Not all CUDA events might have been collected." It says the latter of nearly every
// capture that ends before the program does, also if nothing is missing.
var (
	collectedText = regexp.MustCompile(`^Number of (CUDA|NVTX) events collected:\s*([\d,]+)`)
	notAllText    = regexp.MustCompile(`^Not all (CUDA|NVTX) events might have been collected`)
	lossText      = regexp.MustCompile(`(?i)dropp|\blost\b|not all|incomplete|overflow|might not|could not be collected`)
)

// allProcesses stands for the process of a diagnostic or of a row that names none.
const allProcesses = -1

// source is what a diagnostic is about: the CUDA or the NVTX events of a process.
type source struct {
	kind    string // "CUDA", "NVTX"
	process int64
}

// readDiagnostics reads what nsys says of the capture. If nsys counts the events that it
// collected, the rows of the export decide whether any are missing, not the wording.
func (n *export) readDiagnostics() {
	collected, doubted := map[source]int64{}, map[source]string{}
	var lost []string
	n.rows("DIAGNOSTIC_EVENT", func(r row) {
		text, _ := r.text(0)
		process := int64(allProcesses)
		if global, ok := r.maybe(1); ok {
			process = processOf(global)
		}
		if m := collectedText.FindStringSubmatch(text); m != nil {
			if count, err := strconv.ParseInt(strings.ReplaceAll(m[2], ",", ""), 10, 64); err == nil {
				collected[source{m[1], process}] += count
			}
		} else if m := notAllText.FindStringSubmatch(text); m != nil {
			doubted[source{m[1], process}] = text
		} else if lossText.MatchString(text) {
			lost = append(lost, "nsys says: "+text)
		}
	}, "text", "?globalPid")
	h := &n.header
	h.Incomplete = append(h.Incomplete, lost...)
	all := maps.Clone(doubted)
	for s := range collected {
		all[s] = ""
	}
	sources := slices.SortedFunc(maps.Keys(all), func(a, b source) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.process, b.process))
	})
	rows := map[string]rowCounts{}
	for _, s := range sources {
		if rows[s.kind] == nil {
			rows[s.kind] = n.countRows(s.kind)
		}
	}
	whole := map[string]int64{} // kind to the events of processes in doubt that are all there
	for _, s := range sources {
		has, most := rows[s.kind].of(s.process, collected[s], coreEvents[s.kind])
		count, isCounted := collected[s]
		doubt, isDoubted := doubted[s]
		of := ""
		if s.process != allProcesses {
			of = fmt.Sprintf(" of process %d", s.process)
		}
		switch {
		case isCounted && has < count:
			h.Incomplete = append(h.Incomplete, fmt.Sprintf("nsys collected %s%s, and the export has at most %s of them",
				humanize.Count(int(count), s.kind+" event", s.kind+" events"), of, humanize.Thousands(has)))
		case isCounted && isDoubted:
			whole[s.kind] += count
		case isDoubted && most > 0: // nothing to compare with
			h.Incomplete = append(h.Incomplete, "nsys says"+of+": "+doubt)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(whole)) {
		if whole[kind] > 0 {
			h.Notes = append(h.Notes, fmt.Sprintf("nsys says that not all %s events might have been collected; the export has "+
				"all %s that it counted", kind, humanize.Thousands(whole[kind])))
		}
	}
}

// rowCounts are numbers of rows by process and by group: a table, or a type of events.
type rowCounts map[int64]map[string]int64

// of returns how many of the collected events of a process the export has, and the number of all rows of the process.
// The groups of core are always among the events that nsys counts. Whether it counts the others is not documented: if
// the rows of core and of any choice of the others sum to collected, the export has all.
func (c rowCounts) of(process, collected int64, core map[string]bool) (has, most int64) {
	groups := map[string]int64{}
	for p, counts := range c {
		if process == allProcesses || p == process || p == allProcesses {
			for group, rows := range counts {
				groups[group] += rows
			}
		}
	}
	for group, rows := range groups {
		if most += rows; core[group] {
			has += rows
		}
	}
	if has >= collected {
		return collected, most
	}
	sums := map[int64]bool{has: true}
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		for _, sum := range slices.Collect(maps.Keys(sums)) {
			if more := sum + groups[group]; !core[group] && more <= collected {
				sums[more] = true
				has = max(has, more)
			}
		}
	}
	return has, most
}

// coreEvents are the tables of CUDA and the types of NVTX events whose rows nsys counts as
// events. It does not count those of CUPTI_ACTIVITY_KIND_SYNCHRONIZATION and PROFILER_OVERHEAD.
var coreEvents = map[string]map[string]bool{
	"CUDA": {"CUPTI_ACTIVITY_KIND_KERNEL": true, "CUPTI_ACTIVITY_KIND_MEMCPY": true, "CUPTI_ACTIVITY_KIND_MEMSET": true, "CUPTI_ACTIVITY_KIND_RUNTIME": true},
	"NVTX": {typeName(nvtxMark): true, typeName(nvtxPushPop): true, typeName(nvtxStartEnd): true, typeName(nvtxtPush): true, typeName(nvtxtStart): true},
}

// maybeEvents are tables of CUDA whose rows nsys may count as events.
var maybeEvents = []string{"CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "CUPTI_ACTIVITY_KIND_CUDA_EVENT", "CUDA_GRAPH_EVENTS",
	"CUDA_GRAPH_NODE_EVENTS", "CUDA_GPU_MEMORY_USAGE_EVENTS"}

func typeName(eventType int64) string { return strconv.FormatInt(eventType, 10) }

// countRows counts the rows that are, or may be, CUDA or NVTX events.
func (n *export) countRows(kind string) rowCounts {
	tables := []string{"NVTX_EVENTS"}
	if kind == "CUDA" {
		tables = append(slices.Sorted(maps.Keys(coreEvents[kind])), maybeEvents...)
	}
	c := rowCounts{}
	for _, table := range tables {
		count := func(r row) {
			group := table
			if kind == "NVTX" {
				group = typeName(r.int(2))
			}
			process := int64(allProcesses)
			if global, ok := r.maybe(0); ok {
				process = processOf(global)
			} else if global, ok := r.maybe(1); ok {
				process = processOf(global)
			}
			if c[process] == nil {
				c[process] = map[string]int64{}
			}
			c[process][group]++
		}
		n.rows(table, count, "?globalTid", "?globalPid", "?eventType")
	}
	return c
}
