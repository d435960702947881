package cuda

import (
	"reflect"
	"strings"
	"testing"
)

// field is where a field lies, under a name that both languages share.
type field struct {
	name         string
	offset, size uintptr
}

func fields(t reflect.Type) (out []field) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Name != "_" { // padding
			name := strings.ToLower(strings.TrimPrefix(strings.ReplaceAll(f.Name, "_", ""), "_"))
			out = append(out, field{name, f.Offset, f.Type.Size()})
		}
	}
	return out
}

// The argument structs lie in memory as C has them, field by field.
func TestLayouts(t *testing.T) {
	renamed := map[string]string{"logprob": "logprobability"}
	for name, pair := range layouts() {
		g, c := reflect.TypeOf(pair[0]), reflect.TypeOf(pair[1])
		got, want := fields(g), fields(c)
		for i := range got {
			if r := renamed[got[i].name]; r != "" {
				got[i].name = r
			}
		}
		if g.Size() != c.Size() || !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\nGo %d %v\nC  %d %v", name, g.Size(), got, c.Size(), want)
		}
	}
}
