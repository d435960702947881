// Package auto decides whether a run of the model finishes first on the CPU or on a GPU, before either is opened.
//
// A [Run] says what is to be done: a model, its layers, a prompt, new tokens. [Device.Work] turns it into what a device
// has to do: from the plans of its passes the floors by the device's ceilings, the steps, the bytes of weights. A table
// of measured laws predicts from that how long each part of the run takes: opening the device, loading the weights,
// evaluating the prompt, making the tokens, ending the process.
//
// The [History] holds measured and predicted times of the parts of earlier runs on this machine. Each part of a
// prediction is multiplied by the weighted median of measured / predicted; runs that are alike and recent weigh most.
// Without a history the table alone counts, with the time of the first use of a GPU after the machine started: a run
// goes to a GPU that this machine has not been seen to use only if it saves more than that.
//
// [History.Choose] compares two predictions. It opens nothing, and neither does [FindDriver].
package auto
