package nsys

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gpt2scope/internal/humanize"
	"gpt2scope/internal/lazyregexp"
)

// What nsys says of the events of a process, such as "Number of CUDA events collected: 28804."
// and "Not all CUDA events might have been collected." It says the latter of nearly every
// capture that ends before the program does, also if nothing is missing.
var (
	collectedText = lazyregexp.New(`^Number of (CUDA|NVTX) events collected:\s*([\d,]+)`)
	notAllText    = lazyregexp.New(`^Not all (CUDA|NVTX) events might have been collected`)
	lossText      = lazyregexp.New(`(?i)dropp|\blost\b|not all|incomplete|overflow|might not|could not be collected`)
)

// allProcesses stands for the process of a diagnostic or of a row that names none.
const allProcesses = -1

// source is what a diagnostic is about: the CUDA or the NVTX events of a process.
type source struct {
	kind    string // "CUDA", "NVTX"
	process int64
}

// said is what nsys says of a source.
type said struct {
	collected int64 // -1 if it does not say it
	doubt     string
}

// readDiagnostics reads what nsys says of the capture. If nsys counts the events that it
// collected, the rows of the export decide whether any are missing, not the wording.
func (n *export) readDiagnostics() {
	h, reports := &n.header, map[source]*said{}
	n.rows("DIAGNOSTIC_EVENT", func(r row) {
		text, _ := r.text(0)
		process := int64(allProcesses)
		if global, ok := r.maybe(1); ok {
			process = processOf(global)
		}
		of := func(kind string) *said {
			s := source{kind, process}
			if reports[s] == nil {
				reports[s] = &said{collected: -1}
			}
			return reports[s]
		}
		if m := collectedText().FindStringSubmatch(text); m != nil {
			if count, err := strconv.ParseInt(strings.ReplaceAll(m[2], ",", ""), 10, 64); err == nil {
				report := of(m[1])
				report.collected = max(0, report.collected) + count
			}
		} else if m := notAllText().FindStringSubmatch(text); m != nil {
			of(m[1]).doubt = text
		} else if lossText().MatchString(text) {
			h.Incomplete = append(h.Incomplete, "nsys says: "+text)
		}
	}, "text", "?globalPid")
	if len(reports) == 0 {
		return
	}
	rows, whole := n.countRows(), map[string]int64{} // events of processes in doubt that are all there
	for _, s := range slices.SortedFunc(maps.Keys(reports), func(a, b source) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.process, b.process))
	}) {
		has, most := s.events(rows, reports[s].collected)
		count, doubt, of := reports[s].collected, reports[s].doubt, ""
		if s.process != allProcesses {
			of = fmt.Sprintf(" of process %d", s.process)
		}
		switch {
		case has < count:
			h.Incomplete = append(h.Incomplete, fmt.Sprintf("nsys collected %s%s, and the export has at most %s of them",
				humanize.Count(int(count), s.kind+" event", s.kind+" events"), of, humanize.Thousands(has)))
		case count >= 0 && doubt != "":
			whole[s.kind] += count
		case doubt != "" && most > 0: // nothing to compare with
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

// events returns how many of the collected events of a source the export has, and the number of all rows of the source,
// of the rows by source and group: a table, or a type of events. The groups of core are always among the events that nsys
// counts. Whether it counts the others is not documented: if the rows of core and of any choice of the others sum to
// collected, the export has all.
func (s source) events(rows map[source]map[string]int64, collected int64) (has, most int64) {
	groups := map[string]int64{}
	for of, counts := range rows {
		if of.kind == s.kind && (s.process == allProcesses || of.process == s.process || of.process == allProcesses) {
			for group, n := range counts {
				groups[group] += n
			}
		}
	}
	for group, rows := range groups {
		if most += rows; coreEvents[group] {
			has += rows
		}
	}
	if has >= collected {
		return collected, most
	}
	sums := map[int64]bool{has: true}
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		for _, sum := range slices.Collect(maps.Keys(sums)) {
			if more := sum + groups[group]; !coreEvents[group] && more <= collected {
				sums[more] = true
				has = max(has, more)
			}
		}
	}
	return has, most
}

// coreEvents are the tables of CUDA and the types of NVTX events whose rows nsys counts as
// events. It does not count those of CUPTI_ACTIVITY_KIND_SYNCHRONIZATION and PROFILER_OVERHEAD.
var coreEvents = map[string]bool{"CUPTI_ACTIVITY_KIND_KERNEL": true, "CUPTI_ACTIVITY_KIND_MEMCPY": true,
	"CUPTI_ACTIVITY_KIND_MEMSET": true, "CUPTI_ACTIVITY_KIND_RUNTIME": true, typeName(nvtxMark): true,
	typeName(nvtxPushPop): true, typeName(nvtxStartEnd): true, typeName(nvtxtPush): true, typeName(nvtxtStart): true}

// maybeEvents are tables of CUDA whose rows nsys may count as events.
var maybeEvents = []string{"CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "CUPTI_ACTIVITY_KIND_CUDA_EVENT", "CUDA_GRAPH_EVENTS",
	"CUDA_GRAPH_NODE_EVENTS", "CUDA_GPU_MEMORY_USAGE_EVENTS"}

func typeName(eventType int64) string { return strconv.FormatInt(eventType, 10) }

// countRows counts the rows that are, or may be, CUDA or NVTX events.
func (n *export) countRows() map[source]map[string]int64 {
	found := map[source]map[string]int64{}
	for _, table := range append(slices.Collect(maps.Keys(coreEvents)), append(maybeEvents, "NVTX_EVENTS")...) {
		n.rows(table, func(r row) {
			s, group := source{"CUDA", allProcesses}, table
			if table == "NVTX_EVENTS" {
				s.kind, group = "NVTX", typeName(r.int(2))
			}
			for _, column := range []int{1, 0} {
				if global, ok := r.maybe(column); ok {
					s.process = processOf(global)
				}
			}
			if found[s] == nil {
				found[s] = map[string]int64{}
			}
			found[s][group]++
		}, "?globalTid", "?globalPid", "?eventType")
	}
	return found
}
