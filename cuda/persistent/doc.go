// Package persistent runs whole decode steps, and short prompts, in the persistent kernel: one cooperative kernel with
// a block per SM, which interprets the decode plan as a program.
//
// A [Kernel] belongs to one session. Its program has five steps per layer and one for the logits. A launch runs up to
// [cuda.PersistentTokens] decode steps of up to [cuda.PersistentSequences] sequences, or one prompt of up to
// [cuda.PersistentRows] tokens of one sequence; weights are bfloat16 or 8-bit, the cache is bfloat16. The kernel
// samples tokens itself from a limited number of candidates ([SamplesApart]). Otherwise a launch is one step, and another kernel samples.
//
// [Kernel.LaunchStep] runs one step of the program as a launch of its own, with the same bits as results. [Stamps] are
// the times that blocks note in each step.
package persistent
