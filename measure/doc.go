// Package measure makes a session do work that can be measured, and measures it: the time of a pass, the energy of a
// token.
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
// [Pass] times a pass: after a warm-up, several times, and gives the median with the range of the middle 80 %. The
// warm-up is part of the measurement, not of its result: the first pass of a shape loads kernels, and a GPU captures a
// graph at the second. On a GPU decode steps follow one another without the host waiting in between, as when text is
// generated. [Run] does llama-bench's tests.
//
// [Stages] records the same passes, for a table of their stages.
//
// # Energy
//
// Energy counters step a few to a thousand times a second, and one token takes much less than that. So work is repeated
// for seconds: [Decoding] and [Prefilling] make [Work], and [Meter.Energy] reads a counter meanwhile. The energy of a
// token is the mean power times the time of a token.
//
// [Counters] samples a GPU's power, clock, memory and energy while a run is recorded, and adds them to the recording.
//
// # Errors
//
// A measurement that needs what a backend cannot do fails with an error that is [errors.ErrUnsupported]. After any of
// these functions the session is empty. Passes run on the session's runner, so its statistics do not count them.
package measure
