// Package dispatch decides where and when tasks run, on a CPU and any number of GPUs at once.
//
// # The scheduler
//
// A [Scheduler] holds jobs that have not begun, in a queue for each device. It has no clock and
// no goroutine: callers tell it what has happened, and ask what a device is to begin
// ([Scheduler.Submit], [Scheduler.Next], [Scheduler.Finish], [Scheduler.Lose]). Two callers
// share all of it: [Simulation.Run], in which time is a number, and [Stream.Run] on real devices, where a
// goroutine makes plans from copies while workers begin jobs.
//
// A job that comes goes where it is expected to finish first: max(device free, data arrived) +
// execution. Under a [Policy] that plans, what has not begun is decided again: once many jobs
// have come, where a device would idle, and when observed over predicted time drifts past 1.5.
// The plan is that of the fractional lower bound ([LowerBound]): of all jobs the GPUs get those that gain
// most, by what each resource (host, copies in, work, copies out, lanes) is worth to the rest. Jobs that leave
// most of a GPU to others, as GPT-2 does, run in its lanes, beside those over arrays.
//
// # What it believes
//
// An [Estimator] predicts; [Model] is one by package predict. A [Refinement] corrects it by what
// is observed, for each kind of task on each device: the first sample is dropped, ten are
// needed, old ones count less and outliers little (Huber's estimator). A drift needs fewer: three of
// a kind of task or of a device in a row.
//
// # Grades
//
// [Simulation.Alone] runs one job at a time and grades each choice against the oracle, which
// knows the times. [Simulation.Run] runs the stream on all devices at once; its makespan is
// compared with [LowerBound]. Policies to compare with are the oracle, one device always, the
// best threshold in hindsight, and dmda, the policy of StarPU (Augonnet et al., "StarPU: a unified
// platform for task scheduling on heterogeneous multicore architectures", 2011).
package dispatch
