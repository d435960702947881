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
type Range[N int | float64] struct {
	least, most N
	others      map[N]string // numbers outside that it takes too, with what they mean
}

// AtLeast allows numbers from least on.
func AtLeast[N int | float64](least N) Range[N] { return Between(least, greatest[N]()) }

// greatest returns the greatest number of a type.
func greatest[N int | float64]() (n N) {
	switch p := any(&n).(type) {
	case *int:
		*p = math.MaxInt
	case *float64:
		*p = math.MaxFloat64
	}
	return n
}

// Between allows numbers from least to most.
func Between[N int | float64](least, most N) Range[N] { return Range[N]{least: least, most: most} }

// Positive allows numbers above 0.
func Positive() Range[float64] { return AtLeast(math.SmallestNonzeroFloat64) }

// Or allows another number too.
func (r Range[N]) Or(n N, meaning string) Range[N] {
	r.others = map[N]string{n: meaning}
	return r
}

// Check refuses a number outside.
func (r Range[N]) Check(n N) error {
	if _, ok := r.others[n]; ok || n >= r.least && n <= r.most { // no NaN
		return nil
	}
	return NotAllowed(r.String())
}

// String says which numbers the flag takes.
func (r Range[N]) String() string {
	kind := "a number"
	if _, ok := any(r.least).(int); ok {
		kind = "a whole number"
	}
	text := fmt.Sprintf("%s from %v to %v", kind, r.least, r.most)
	if r.most == greatest[N]() {
		text = fmt.Sprintf("%s, at least %v", kind, r.least)
	}
	if float64(r.least) == math.SmallestNonzeroFloat64 {
		text = "a positive number"
		if r.most != greatest[N]() {
			text += fmt.Sprintf(", at most %v", r.most)
		}
	}
	for n, meaning := range r.others {
		text += fmt.Sprintf(", or %v (%s)", n, meaning)
	}
	return text
}

// flagValue is a value of a flag that is checked when it is set.
type flagValue[T any] struct {
	to    *T
	kind  string
	parse func(string) (T, error)
	words []string // for completion
}

func (v *flagValue[T]) Type() string    { return v.kind }
func (v *flagValue[T]) Words() []string { return v.words }
func (v *flagValue[T]) String() string  { return fmt.Sprint(*v.to) }

func (v *flagValue[T]) Set(text string) error {
	value, err := v.parse(text)
	if err == nil {
		*v.to = value
	}
	return err
}

// Int is a flag of a whole number. Its default is not checked: 0 often stands for one that is computed.
func Int(to *int, value int, allowed Range[int]) pflag.Value {
	*to = value
	return &flagValue[int]{to: to, kind: "int", parse: func(text string) (int, error) {
		n, err := strconv.Atoi(text)
		if err != nil {
			return 0, NotAllowed(allowed.String())
		}
		return n, allowed.Check(n)
	}}
}

// Float is a flag of a finite number.
func Float(to *float64, value float64, allowed Range[float64]) pflag.Value {
	*to = value
	return &flagValue[float64]{to: to, kind: "float64", parse: func(text string) (float64, error) {
		x, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsInf(x, 0) {
			return 0, NotAllowed(allowed.String())
		}
		return x, allowed.Check(x)
	}}
}

// OneOf is a flag that takes one of these words.
func OneOf[S ~string](to *S, value S, words ...S) pflag.Value {
	*to = value
	texts := Texts(words)
	return &flagValue[S]{to: to, kind: "string", words: texts, parse: func(text string) (S, error) {
		if !slices.Contains(texts, text) {
			return "", NotAllowed(orList(texts))
		}
		return S(text), nil
	}}
}

// Suggest is a flag of any text, which these words complete in a shell.
func Suggest(to *string, value string, words ...string) pflag.Value {
	*to = value
	return &flagValue[string]{to: to, kind: "string", words: words, parse: func(text string) (string, error) { return text, nil }}
}

// orList joins words: a, b or c.
func orList(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// Texts are the words of a list of named values.
func Texts[T ~string](values []T) (words []string) {
	for _, v := range values {
		words = append(words, string(v))
	}
	return words
}

// IntList is a flag of whole numbers, such as 1,2; the flag may be repeated.
type IntList struct {
	Values  []int
	Allowed Range[int]
	Changed bool
}

func (l *IntList) String() string {
	var words []string
	for _, v := range l.Values {
		words = append(words, strconv.Itoa(v))
	}
	return strings.Join(words, ",")
}

// Type names the flag's kind for messages: each value is one.
func (l *IntList) Type() string { return "int" }

// Set implements pflag.Value.
func (l *IntList) Set(text string) error {
	var values []int
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(word)
		if err != nil {
			return NotAllowed(l.Allowed.String())
		}
		if err := l.Allowed.Check(n); err != nil {
			return err
		}
		values = append(values, n)
	}
	if l.Changed {
		values = append(l.Values, values...)
	}
	l.Values, l.Changed = values, true
	return nil
}

// One returns the value of a flag that takes one here.
func (l *IntList) One(flag string) (int, error) {
	if len(l.Values) != 1 {
		return 0, Usagef("--%s %s: give one value; only 'infer bench' takes a list", flag, l)
	}
	return l.Values[0], nil
}
