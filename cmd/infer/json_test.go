package main

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	"gpt2scope/cmd/infer/bench"
	"gpt2scope/cmd/infer/cli"
	learncmd "gpt2scope/cmd/infer/learn"
	taskscmd "gpt2scope/cmd/infer/tasks"
	"gpt2scope/glossary"
	"gpt2scope/layers"
	"gpt2scope/predict"
	"gpt2scope/predict/grade"
	"gpt2scope/schedule"
	"gpt2scope/traces/diff"
	"gpt2scope/traces/judge"
	embedded "gpt2scope/traces/samples"
	"gpt2scope/traces/stages"
	"gpt2scope/traces/tables"
)

// jsonObjects are what commands print with --json, in the order of docs/json.md.
var jsonObjects = []struct {
	command string
	object  any
}{
	{"infer", result{}}, {"infer info", infoJSON{}}, {"infer eval", evalJSON{}}, {"infer tokenize", tokensJSON{}}, {"infer devices", devices{}},
	{"infer version", versionJSON{}}, {"infer explain", []glossary.Entry{}}, {"infer bench", bench.BenchJSON{}}, {"infer bench -p N", []bench.ListRow{}},
	{"infer bench ceilings", bench.CeilingsObject{}}, {"infer bench kernel", bench.KernelJSON{}}, {"infer bench energy", bench.EnergyObject{}},
	{"infer trace show", tables.Table{}}, {"infer trace stages", stages.Inference{}},
	{"infer trace check", judge.Trust{}}, {"infer trace advise", judge.Advice{}}, {"infer trace kpi", judge.Report{}}, {"infer trace diff", diff.Comparison{}}, {"infer trace samples", []embedded.Sample{}}, {"infer learn", learncmd.LearnJSON{}}, {"infer layers", layers.Result{}}, {"infer tasks bench", taskscmd.TasksObject{}},
	{"infer tasks simulate", schedule.Report{}}, {"infer tasks run", schedule.Report{}}, {"infer tasks fit", predict.Model{}},
	{"infer tasks check", grade.Result{}},
}

// jsonPage writes docs/json.md from the structs and from the comments of their fields.
type jsonPage struct {
	text     bytes.Buffer
	names    map[reflect.Type]string
	queue    []reflect.Type                          // structs whose tables are due
	comments map[string]map[string]map[string]string // by package, struct and field; of the struct itself by ""
}

// docOf returns the comment of a field of a struct, or of the struct.
func (p *jsonPage) docOf(t reflect.Type, field string) string {
	path := t.PkgPath()
	if p.comments[path] == nil {
		p.comments[path] = map[string]map[string]string{}
		files, _ := filepath.Glob(filepath.Join("../..", strings.TrimPrefix(strings.TrimSuffix(path, "_test"), "gpt2scope"), "*.go"))
		for _, file := range files {
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
			if err != nil {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				d, ok := n.(*ast.GenDecl)
				if !ok {
					return true
				}
				for _, spec := range d.Specs {
					if s, ok := spec.(*ast.TypeSpec); ok {
						if of, ok := s.Type.(*ast.StructType); ok {
							p.comments[path][s.Name.Name] = fieldComments(d.Doc, of)
						}
					}
				}
				return true
			})
		}
	}
	return p.comments[path][t.Name()][field]
}

func fieldComments(doc *ast.CommentGroup, of *ast.StructType) map[string]string {
	line := func(c *ast.CommentGroup) string { return strings.Join(strings.Fields(c.Text()), " ") }
	comments := map[string]string{"": line(doc)}
	for _, f := range of.Fields.List {
		for _, name := range f.Names {
			comments[name.Name] = strings.TrimSpace(line(f.Doc) + " " + line(f.Comment))
		}
	}
	return comments
}

// kind names the type of a value in JSON, and has tables written of structs.
func (p *jsonPage) kind(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[cli.Number]():
		return "number or null"
	case t == reflect.TypeFor[json.RawMessage](), t.Kind() == reflect.Interface:
		return "any"
	case t == reflect.TypeFor[time.Time](), t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return "string"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return p.kind(t.Elem())
	case reflect.Slice, reflect.Array:
		return p.kind(t.Elem()) + "[]"
	case reflect.Map:
		return "map of " + p.kind(t.Elem())
	case reflect.String, reflect.Bool:
		return t.Kind().String()
	case reflect.Struct:
		return p.name(t)
	}
	return "number"
}

// name names a struct, and puts it in the queue when it is first seen.
func (p *jsonPage) name(t reflect.Type) string {
	if p.names[t] == "" {
		name := []rune(strings.TrimSuffix(strings.TrimSuffix(t.Name(), "JSON"), "Object"))
		name[0] = unicode.ToUpper(name[0])
		p.names[t] = string(name)
		for other, taken := range p.names {
			if other != t && taken == string(name) {
				path := strings.Split(t.PkgPath(), "/")
				p.names[t] = path[len(path)-1] + "." + string(name)
			}
		}
		p.queue = append(p.queue, t)
	}
	return p.names[t]
}

// table writes the fields of a struct, those of embedded structs among them.
func (p *jsonPage) table(t reflect.Type) {
	p.text.WriteString("\n| field | type | meaning |\n|---|---|---|\n")
	var rows func(t reflect.Type)
	rows = func(t reflect.Type) {
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		for f := range t.Fields() {
			tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Anonymous && tag == "" {
				rows(f.Type)
			} else if f.IsExported() && tag != "-" && tag != "" {
				kind := p.kind(f.Type)
				if strings.Contains(options, "omit") {
					kind += "?"
				} else if f.Type.Kind() == reflect.Pointer {
					kind += " or null"
				}
				fmt.Fprintf(&p.text, "| `%s` | %s | %s |\n", tag, kind, strings.ReplaceAll(p.docOf(t, f.Name), "|", "\\|"))
			}
		}
	}
	rows(t)
}

const jsonIntroduction = `# JSON

` + "`--json`" + ` makes a command print one JSON value to standard output, and nothing else there. A name ends in its unit
(` + "`_ms`, `_us`, `_bytes`, `_w`" + `); in what ` + "`infer trace`" + ` prints, times without a unit are nanoseconds. A rate counts
units of 1e9 (` + "`gb_per_s`, `gflop_per_s`" + `).

A type that ends in ` + "`?`" + ` is of a field that may be absent, which is also how zero and the empty text are written there.
` + "`T[]`" + ` is a list, and a name with a capital letter is an object that has its own table. New fields may come; those here
keep their names and meaning. Recordings (` + "`--trace`" + `) have a format of their own: [traces/FORMAT.md](../traces/FORMAT.md).

This page is made from the program's types: ` + "`go test ./cmd/infer -run TestDocsJSON -update`." + `
`

// docs/json.md is what the types of the program say; -update writes it.
func TestDocsJSON(t *testing.T) {
	p := jsonPage{names: map[reflect.Type]string{}, comments: map[string]map[string]map[string]string{}}
	p.text.WriteString(jsonIntroduction)
	for _, o := range jsonObjects {
		of, list := reflect.TypeOf(o.object), ""
		if of.Kind() == reflect.Slice {
			of, list = of.Elem(), ", a list of"
		}
		fmt.Fprintf(&p.text, "\n## `%s --json`%s\n", o.command, list)
		p.names[of] = "`" + o.command + "`"
		p.table(of)
		for len(p.queue) > 0 {
			next := p.queue[0]
			p.queue = p.queue[1:]
			fmt.Fprintf(&p.text, "\n### %s\n", p.names[next])
			p.table(next)
		}
	}
	isStored(t, "../../docs/json.md", p.text.Bytes())
}
