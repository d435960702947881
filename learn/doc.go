// Package learn holds lessons: claims about CPUs, GPUs and their profilers that are put to the
// test on the reader's own machine.
//
// # A lesson
//
// A Lesson is a claim, one or two experiments, and an explanation. An Experiment is two functions: Run measures, and
// Judge makes a Finding of the data, and of nothing else, so that the same data always give the same verdict: that of
// the first rule that holds, with its sentence. One experiment runs on the CPU, one on the GPU. Each lesson is a file,
// with its CUDA C++ beside it; All lists them.
//
// The verdicts are Shown, HalfTrue, Refuted, and Unknown: the data do not decide, or there are none.
//
// # Recordings
//
// A Recording holds the data of experiments with the machine and the date. Results on a machine
// without a GPU take the data of GPU experiments from a recording, and say so. A recording
// holds no verdicts: Judge makes them anew each time.
//
//	r, err := learn.Run(ctx, &learn.Env{}, lesson, learn.FindMachine(nil), recording)
//	if err != nil { ... }
//	fmt.Println(r.Verdict, r.Parts[0].Text)
//
// # Rules for experiments
//
// An experiment takes seconds and bounded memory, never more of the GPU's memory than is free,
// and frees what it takes. Loops are bounded. Managed memory is taken with --managed only. What must not harm
// the process, or must begin in a fresh one, is a Program, which runs in a process of its own.
package learn
