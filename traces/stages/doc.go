// Package stages gives the recordings of other programs passes and steps, so that tables,
// comparisons and pages show them as gpt2scope's own: from the program's own ranges
// ([OfRanges]).
package stages
