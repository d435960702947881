// Package tables says where the time of a trace went.
//
// [Summarize] makes tables by stage, layer, phase or kernel. It goes once over the work
// in the order in which it began: each nanosecond belongs to the work that began first
// of that which still runs (the exclusive time of its row), or, where nothing runs, to a
// cause of idle time. So the rows sum to the wall time exactly, however kernels or
// threads overlap. Floors are those of the cost that a step has at its pass' position.
// The tables by operation and by launch have times that lie in one another, and do not
// sum.
package tables
