package nsys

import (
	"slices"
	"strconv"
	"strings"

	"gpt2scope/traces"
)

// environment takes the rank from a variable of the profiled program, such as RANK="0". The
// launcher sets it for the program, whose children inherit it.
func (n *export) environment(variable string) {
	name, value, _ := strings.Cut(variable, "=")
	rank, err := strconv.Atoi(strings.Trim(value, `"`))
	if err != nil || rank < 0 || !slices.Contains(traces.RankVariables, name) {
		return
	}
	if n.variables == nil {
		n.variables = map[string]int{}
	}
	n.variables[name] = rank
}

// readRanks finds the ranks of processes: those that MPI gave to threads (nsys profile -t mpi),
// those in the names of processes, and that of the environment.
func (n *export) readRanks() error {
	add := func(process int64, rank int, source string) {
		n.header.Ranks = append(n.header.Ranks, traces.Rank{Process: process, Rank: rank, Source: source})
	}
	err := n.rows("MPI_RANKS", func(r row) {
		if rank, ok := r.maybe(1); ok && rank >= 0 && processOf(r.int(0)) != 0 {
			add(processOf(r.int(0)), int(min(rank, 1<<31-1)), "MPI_RANKS")
		}
	}, "globalTid", "rank")
	if err != nil {
		return err
	}
	err = n.rows("PROCESSES", func(r row) {
		name, _ := r.text(1)
		if rank, ok := traces.RankInName(name); ok && processOf(r.int(0)) != 0 {
			add(processOf(r.int(0)), rank, "the name of the process")
		}
	}, "globalPid", "?name")
	if err != nil {
		return err
	}
	for _, name := range traces.RankVariables {
		if rank, ok := n.variables[name]; ok {
			add(0, rank, "the variable "+name)
			break
		}
	}
	return nil
}
