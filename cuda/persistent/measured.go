package persistent

import (
	"fmt"

	"gpt2scope/cuda"
	"gpt2scope/gpt2"
)

// fasterSequences is the largest number of sequences for which decode steps in the persistent kernel were measured to
// take less time than graphs, with one layer and with many, by whether weights are of 8 bits and by width. Of several
// sequences gpt2-xl in bfloat16 has too little shared memory.
var fasterSequences = map[bool]map[int]int{
	false: {384: 8, 768: 8, 1024: 8, 1280: 4, 1600: 1},
	true:  {384: 8, 768: 8, 1024: 8, 1280: 4, 1600: 4},
}

// Sequences returns that number, 0 for widths without such a kernel.
func Sequences(width int, q8 bool) int { return fasterSequences[q8][width] }

// fasterRows is the same of the rows of a prompt of one sequence.
var fasterRows = map[int]int{384: 8, 768: 8, 1024: 8, 1280: 8, 1600: 4}

// SlowerPrompt tells whether a prompt of so many rows was not measured to be faster than as a graph. A launch for each
// prompt takes too long for the smallest models.
func SlowerPrompt(width, layers, rows int) bool {
	return rows > 1 && rows > fasterRows[width] || width < 768 && layers < 3
}

// Slower returns why decode steps were not measured to be faster than as graphs, "" if they were.
func Slower(c gpt2.Config, q8 bool, layers, sequences int, s gpt2.Sampling) string {
	small := c.Channels < 768
	switch most := Sequences(c.Channels, q8); {
	case most == 0:
		return fmt.Sprintf("at a width of %d the persistent kernel was not measured to be faster", c.Channels)
	case sequences > most:
		return fmt.Sprintf("of %d sequences at a width of %d the persistent kernel was not measured to be faster", sequences,
			c.Channels)
	case SamplesApart(s, c.Vocab) && small && layers < 3:
		return "tokens are sampled by a launch of their own, and the model is too small for the persistent kernel to " +
			"make up for that (--top-k 40 needs no launch)"
	case sequences > 4 && candidates(s, c.Vocab) > 64 && small && layers < 2:
		return "tokens of many sequences are sampled from many candidates, and the model is too small for the persistent " +
			"kernel to make up for that"
	}
	return ""
}

// Pays is how many tokens passes that verify drafts must make so that texts are sooner ready than by steps of one row:
// more than such a pass takes longer, which is 1.5 to 1.9.
const Pays = 2.0

// candidates returns from how many tokens of a vocabulary a token is sampled, as [cuda.PersistentArgs].Candidates has
// it: 0 for the argmax without its log-probability.
func candidates(s gpt2.Sampling, vocab int) int {
	switch {
	case s.Temperature == 0 && !s.LogProbs:
		return 0
	case s.Temperature == 0:
		return 1
	case s.TopK <= 0 || s.TopK > vocab:
		return vocab
	}
	return s.TopK
}

// SamplesApart tells whether the kernel leaves the logits of each step to another kernel, since there are too many
// candidates.
func SamplesApart(s gpt2.Sampling, vocab int) bool {
	n := candidates(s, vocab)
	return n > 0 && !cuda.CanSample(n, vocab)
}

// Greedy tells whether tokens are the argmax, without its log-probability.
func Greedy(s gpt2.Sampling) bool { return candidates(s, 1) == 0 }
