package cli

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// NotAllowed is the error of a flag's value: it says what is allowed.
type NotAllowed string

func (e NotAllowed) Error() string { return "it must be " + string(e) }

// Range is which numbers a flag takes.
type Range struct {
	least, most float64
	others      map[float64]string // numbers outside that it takes too, with what they mean
}

// AtLeast allows numbers from least on.
func AtLeast(least float64) Range { return Between(least, math.Inf(1)) }

// Between allows numbers from least to most.
func Between[N int | float64](least, most N) Range {
	return Range{least: float64(least), most: float64(most)}
}

// Positive allows numbers above 0.
func Positive() Range { return AtLeast(math.SmallestNonzeroFloat64) }

// Or allows another number too.
func (r Range) Or(n float64, meaning string) Range {
	r.others = map[float64]string{n: meaning}
	return r
}

// Check refuses a number outside, and NaN; kind is "a number" or "a whole number".
func (r Range) Check(kind string, n float64) error {
	if _, ok := r.others[n]; ok || n >= r.least && n <= r.most && !math.IsInf(n, 0) {
		return nil
	}
	return r.refusal(kind)
}

// refusal says which numbers the flag takes.
func (r Range) refusal(kind string) error {
	number := func(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
	text := fmt.Sprintf("%s from %s to %s", kind, number(r.least), number(r.most))
	if r.least == math.SmallestNonzeroFloat64 {
		text = "a positive number"
	} else if math.IsInf(r.most, 1) {
		text = fmt.Sprintf("%s, at least %s", kind, number(r.least))
	}
	for n, meaning := range r.others {
		text += fmt.Sprintf(", or %s (%s)", number(n), meaning)
	}
	return NotAllowed(text)
}

// flagValue is a value of a flag that is checked when it is set.
type flagValue[T any] struct {
	to    *T
	kind  string
	parse func(string) (T, error)
}

func (v *flagValue[T]) Type() string   { return v.kind }
func (v *flagValue[T]) String() string { return fmt.Sprint(*v.to) }

func (v *flagValue[T]) Set(text string) error {
	value, err := v.parse(text)
	if err == nil {
		*v.to = value
	}
	return err
}

// Int is a flag of a whole number. Its default is not checked: 0 often stands for one that is computed.
func Int(to *int, value int, allowed Range) pflag.Value {
	*to = value
	return &flagValue[int]{to, "int", allowed.whole}
}

func (r Range) whole(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, r.refusal("a whole number")
	}
	return n, r.Check("a whole number", float64(n))
}

// Float is a flag of a finite number.
func Float(to *float64, value float64, allowed Range) pflag.Value {
	*to = value
	return &flagValue[float64]{to, "float64", func(text string) (float64, error) {
		x, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return 0, allowed.refusal("a number")
		}
		return x, allowed.Check("a number", x)
	}}
}

// OneOf is a flag that takes one of these words.
func OneOf[S ~string](to *S, value S, allowed ...S) pflag.Value {
	*to = value
	return &flagValue[S]{to, "string", func(text string) (S, error) { return S(text), oneOf(Texts(allowed))(text) }}
}

func oneOf(allowed []string) func(string) error {
	return func(text string) error {
		if last := len(allowed) - 1; !slices.Contains(allowed, text) {
			return NotAllowed(strings.Join(allowed[:last], ", ") + " or " + allowed[last])
		}
		return nil
	}
}

// Parsed is a flag of a value that has a text of its own.
func Parsed[T any](to *T, value T, parse func(string) (T, error)) pflag.Value {
	*to = value
	return &flagValue[T]{to, "string", parse}
}

// words is a flag of a word, or of several with commas between them, each of which passes a check.
func words(to *string, value string, check func(string) error) pflag.Value {
	*to = value
	return &flagValue[string]{to, "string", func(text string) (string, error) {
		for word := range strings.SplitSeq(text, ",") {
			if err := check(word); err != nil {
				return "", err
			}
		}
		return text, nil
	}}
}

// Texts are the words of a list of named values.
func Texts[T ~string](values []T) (words []string) {
	for _, v := range values {
		words = append(words, string(v))
	}
	return words
}

// IntList is whole numbers, as a flag has them: 1,2.
type IntList []int

func (l IntList) String() string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint([]int(l)), " ", ","), "[]")
}

// Ints is a flag of whole numbers.
func Ints(to *IntList, value IntList, allowed Range) pflag.Value {
	*to = value
	return &flagValue[IntList]{to, "int", func(text string) (l IntList, err error) {
		for word := range strings.SplitSeq(text, ",") {
			n, err := allowed.whole(word)
			if err != nil {
				return nil, err
			}
			l = append(l, n)
		}
		return l, nil
	}}
}

// One returns the value of a flag that takes one here.
func (l IntList) One(flag string) (int, error) {
	if len(l) != 1 {
		return 0, Usagef("--%s %s: give one value; only 'infer bench' takes a list", flag, l)
	}
	return l[0], nil
}
