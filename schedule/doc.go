// Package schedule runs a stream of tasks on a CPU and GPUs at once, and decides where each task runs.
//
// A [Scheduler] keeps a queue for each device. It has no clock and no goroutine: its callers say what happened and when
// ([Scheduler.Submit], [Scheduler.Finish], [Scheduler.Lose]) and ask for the next task of a device ([Scheduler.Next]).
// Two callers share it: [Simulation.Run] on a simulated clock, and [Stream.Run] on real devices.
//
// A task that arrives joins the queue of the device with the earliest expected finish. A policy that plans divides all
// waiting tasks anew when many have arrived or predictions have changed: the GPUs get the tasks that gain most there,
// the CPU the others, such that all end at once. A device whose queue is empty steals from another queue if the task
// ends sooner that way.
//
// Predictions are multiplied by a running ratio measured / predicted time of each kind of task on each device. Tasks of
// a lost GPU go back to the queues of the others. A task runs only where its memory suffices.
//
// Expected finish on floors, one of the policies, is dmda of StarPU (Augonnet et al., "StarPU: a unified platform for
// task scheduling on heterogeneous multicore architectures", 2011).
package schedule
