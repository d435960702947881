package tokenizer

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A part is an object of tokenizer.json that has a type: a normalizer, a pre-tokenizer, a model. What is read is taken
// out of fields, so that what is left over was not understood.
type part struct {
	kind   string
	fields map[string]json.RawMessage
	err    error
}

// take returns a field of p, or value if it is missing or null.
func take[T any](p *part, name string, value T) T {
	raw := p.fields[name]
	delete(p.fields, name)
	if raw == nil || string(raw) == "null" {
		return value
	}
	if err := unmarshal(raw, &value); err != nil {
		p.fail(fmt.Errorf("%s: %w", name, err))
	}
	return value
}

// need takes a field that must be there, which parse reads.
func need[T any](p *part, name string, parse func([]byte) (T, error)) (value T) {
	raw := p.fields[name]
	if delete(p.fields, name); raw == nil {
		p.fail(fmt.Errorf("%s is missing", name))
		return value
	}
	value, err := parse(raw)
	if err != nil {
		p.fail(fmt.Errorf("%s: %w", name, err))
	}
	return value
}

// ignore takes options, true or false, that change no id here.
func (p *part) ignore(names ...string) {
	for _, name := range names {
		take(p, name, true)
	}
}

// fail keeps the first error.
func (p *part) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// flatten returns the parts of raw: those of a Sequence, whose list has the given name, none for null, otherwise raw.
func flatten(raw json.RawMessage, list string) ([]*part, error) {
	if raw == nil || string(raw) == "null" {
		return nil, nil
	}
	p := &part{}
	if err := unmarshal(raw, &p.fields); err != nil {
		return nil, err
	}
	if p.kind = take(p, "type", ""); p.kind != "Sequence" {
		return []*part{p}, p.err
	}
	var parts []*part
	for _, raw := range take(p, list, []json.RawMessage(nil)) {
		more, err := flatten(raw, list)
		if err != nil {
			return nil, err
		}
		parts = append(parts, more...)
	}
	return parts, p.err
}

// read makes what the parts of raw stand for by rows, one for each type. where names the parts in errors. If edit is not
// nil, it is called with each before.
func read[T any](where string, raw json.RawMessage, list string, rows map[string]func(*part) T, edit func(*part)) ([]T,
	error) {
	parts, err := flatten(raw, list)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	values := make([]T, 0, len(parts))
	for _, p := range parts {
		if edit != nil {
			edit(p)
		}
		row := rows[p.kind]
		if row == nil {
			return nil, fmt.Errorf("%s is %.40q, which is not supported; supported are %s", where, p.kind,
				strings.Join(slices.Sorted(maps.Keys(rows)), ", "))
		}
		values = append(values, row(p))
		if err := p.done(); err != nil {
			return nil, fmt.Errorf("%s %s: %w", where, p.kind, err)
		}
	}
	return values, nil
}

// done returns the first error of reading p, or names a field that nothing took.
func (p *part) done() error {
	for _, name := range slices.Sorted(maps.Keys(p.fields)) {
		p.fail(fmt.Errorf("option %.40q = %.40s is not supported", name, p.fields[name]))
	}
	return p.err
}

// choose returns the value of a field, which must be one of those allowed.
func choose(p *part, name, value string, allowed ...string) string {
	value = take(p, name, value)
	if !slices.Contains(allowed, value) {
		p.fail(fmt.Errorf("%s is %.40q; supported are %q", name, value, allowed))
	}
	return value
}

// A pattern of tokenizer.json is a string that is looked for, or a regular expression.
type pattern struct{ String, Regex *string }
