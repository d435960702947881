package traces

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
)

// Rank says which rank of a distributed program a process is.
type Rank struct {
	// Process is its id. 0 in a file stands for the only process whose work on a GPU the file has:
	// what names the rank often does not name the process.
	Process int64 `json:"process"`

	Rank   int    `json:"rank"`
	Source string `json:"source"` // what says so: "distributedInfo", "MPI_RANKS", "the variable RANK", "the file's name"

	// OwnGPU says that no other rank uses its GPU: the ranks communicate by NCCL, which refuses that.
	OwnGPU bool `json:"ownGPU,omitempty"`
}

// RankVariables are the environment variables by which launchers tell a process its rank, those that
// are more certain first: torchrun, Open MPI, MPICH and PMIx, MVAPICH, Slurm.
var RankVariables = []string{"RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK",
	"SLURM_PROCID"}

var rankInName = regexp.MustCompile(`(?i)(?:^|[^a-z])rank[-_ =.]?(\d{1,6})(?:\D|$)`)

// RankInName finds the rank in the name of a file or process, such as "run_rank3.sqlite".
func RankInName(name string) (rank int, ok bool) {
	m := rankInName.FindStringSubmatch(name)
	if m == nil {
		return 0, false
	}
	rank, err := strconv.Atoi(m[1])
	return rank, err == nil
}

// RankOf returns the rank of a process, and whether the recording says it.
func (h *Header) RankOf(process int64) (rank int, ok bool) {
	for _, r := range h.Ranks {
		if r.Process == process && process != 0 {
			return r.Rank, true
		}
	}
	return 0, false
}

// ProcessName names a process for people: "rank 0", or "process 4711" if it has no known rank.
func (h *Header) ProcessName(process int64) string {
	if rank, ok := h.RankOf(process); ok {
		return fmt.Sprintf("rank %d", rank)
	}
	return fmt.Sprintf("process %d", process)
}

// nameRanks gives ranks that name no process the only process with work on a GPU. If there are
// several, or none, these ranks are left out. Of several ranks of a process the first counts.
func (t *Trace) nameRanks() {
	h := t.Header
	if len(h.Ranks) == 0 {
		return
	}
	processes := map[int64]bool{}
	for i := range t.Events {
		if e := &t.Events[i]; e.Kind.IsGPU() && h.ProcessOf(e) != 0 {
			processes[h.ProcessOf(e)] = true
		}
	}
	only := int64(0)
	if len(processes) == 1 {
		only = slices.Collect(maps.Keys(processes))[0]
	}
	var ranks []Rank
	for _, r := range h.Ranks {
		r.Process = cmp.Or(r.Process, only)
		if r.Process != 0 && !slices.ContainsFunc(ranks, func(o Rank) bool { return o.Process == r.Process }) {
			ranks = append(ranks, r)
		}
	}
	slices.SortFunc(ranks, func(a, b Rank) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Process, b.Process))
	})
	h.Ranks = ranks
}
