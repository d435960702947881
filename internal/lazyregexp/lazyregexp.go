// Package lazyregexp has regular expressions that are compiled when they are first used: most runs of the program use
// few of its own.
package lazyregexp

import (
	"regexp"
	"sync"
)

// New returns what gives a regular expression. It is a mistake in the program if it cannot be compiled.
func New(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
