// Package tasks is a suite of work that a CPU and a GPU can both do, and measures it on both.
//
// A [Task] is a file: its formula, a reference in float64, the ways to do it on either
// device, what it costs and at which sizes it is measured. [All] lists the tasks. Adding one
// takes a file and a line of that list.
//
// A [Case] is one way of a task with its shape, type, memory and start; a [Sample] is one
// measured repeat of it. [Suite] lists the cases, and [Bench.Run] measures them in turns, in
// random order, on random numbers whose results are checked each time.
package tasks
