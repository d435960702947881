// Package stages gives the recordings of other programs passes and steps, so that tables, comparisons and pages show
// them as gpt2scope's own: from the program's own ranges ([OfRanges]), or from the names, grids and order of the
// kernels ([Infer]).
//
// The files: ranges.go has the first; classes.go says what the name of a kernel means, chain.go is the model of the
// order of stages, and infer.go finds passes, layers and names with it.
package stages
