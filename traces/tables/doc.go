// Package tables says where the time of a trace went.
//
// [Summarize] makes the tables. By stage, layer, phase and kernel, each nanosecond belongs to the running work that
// began first (the exclusive time of its row) or, if nothing runs, to a cause of idle time. So the rows sum to the wall
// time exactly, even if kernels or threads overlap. The floor of a step is for its cost at the position of its pass.
// The tables by operation and by range contain nested times, which do not sum.
package tables
