// Package auto decides whether a run of the model finishes first on the CPU or on a GPU, before either is opened.
//
// [Device.Work] says what a device has to do in a [Run]: floors by its ceilings, steps, bytes of weights. A table of
// measured laws predicts from that how long each part of the run takes: opening the device, loading the weights,
// evaluating the prompt, making the tokens, ending the process. Each part is multiplied by the weighted median of
// measured / predicted in the [History] of runs on this machine; runs that are alike and recent weigh most.
package auto
