package learn

import (
	"flag"
	"os"
	"strings"
	"testing"
	"text/template"
	"time"

	"gpt2scope/internal/require"
)

var update = flag.Bool("update", false, "write docs/learn.md")

// docs/learn.md is what the lessons and the recording give.
func TestDocs(t *testing.T) {
	const path = "../docs/learn.md"
	escaper := strings.NewReplacer("*", `\*`, "<", "&lt;", "|", `\|`, "_", `\_`, "\n", " ")
	page, err := template.New("learn.md.tmpl").Funcs(template.FuncMap{"escaped": escaper.Replace}).
		ParseFiles("testdata/learn.md.tmpl")
	require.NoError(t, err)
	r := shippedRecording(t)
	data := map[string]any{"Date": r.Created.Format(time.DateOnly), "CPU": r.Machine.name(OnCPU), "GPU": r.Machine.GPU,
		"Driver": r.Machine.Driver}
	var lessons []Result
	for _, l := range All() {
		lessons = append(lessons, judged(t, l, r))
	}
	data["Lessons"] = lessons
	var want strings.Builder
	require.NoError(t, page.Execute(&want, data))
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(want.String()), 0o666))
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != want.String() {
		t.Errorf("docs/learn.md is not what the lessons give; 'go test ./learn -run TestDocs -update' writes it (%v)", err)
	}
}

func shippedRecording(t *testing.T) *Recording {
	t.Helper()
	r := require.Value(Shipped())(t)
	return r
}

// judged is the result of a lesson by a recording.
func judged(t *testing.T, l *Lesson, r *Recording) Result {
	t.Helper()
	result := require.Value(Judge(t.Context(), l, r))(t)
	return result
}
