// Package measure makes a session do work that can be measured, and measures it: the time
// of a pass and of its stages, the energy of a token, the cost of recording.
//
// # The work
//
// What passes compute depends on their shapes, not on their tokens. So all work is of random ids ([IDs]), the same ones
// each time. How much a decode step reads depends on how many tokens the KV cache holds, so measurements say how many
// ([Fill]), and each step that is timed has that many before it. The cache is filled in small chunks, because a prompt
// evaluated at once would need more memory than the pass that is measured.
//
// # Time
//
// [Pass] times a pass: after a warm-up, several times, and gives the median with the range
// of the middle 80 %. The warm-up is part of the measurement, not of its result: the first
// pass of a shape loads kernels, and a GPU captures a graph at the second. On a GPU decode
// steps follow one another without the host waiting in between, as when text is generated.
//
// [Steps] repeats some steps of a pass and nothing else. What is repeated may stay in a cache that a whole pass does
// not fit in, so it may be faster than within a pass ([StageWork.StaysIn]).
//
// [Rows] is a fixed list of passes for comparisons with other engines, and [Sessions]
// measures them. [FirstOutput] times a program from its start to its first output.
//
// [Stages] records passes and gives each stage's time beside its floor.
//
// # Energy
//
// Energy counters step a few to a thousand times a second, and one token takes much less than that. So work is repeated
// for seconds: [Decoding], [Prefilling] and [Repeating] make [Work], and [Meter.Energy] reads a counter meanwhile. The
// energy of a token is the mean power times the time of a token.
//
// [Counters] samples a GPU's power, clock, memory and energy while a run is recorded, and adds them to the recording.
//
// # Comparing
//
// What drifts, such as a clock or another program, must meet all alike. [Rounds] measures
// kinds in turns. The cost of recording is measured so, in processes of their own, because
// a recorder may slow the process that it was loaded into even while it is off.
//
// # Errors
//
// A measurement that needs what a backend cannot do fails with an error that is [errors.ErrUnsupported]. After any of
// these functions the session is empty. Passes run on the session's runner, so its statistics do not count them.
package measure
