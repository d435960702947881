package webpage

import (
	"html"
	"strings"
	"testing"

	"gpt2scope/internal/require"
)

func TestHead(t *testing.T) {
	page, err := New("{{template \"head\" .Head}}<body>{{.Text}}{{with .Head.Script}}<script>{{.}}</script>{{end}}</body>\n</html>\n", nil)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		head   Head
		policy string
		parts  []string
	}{
		"style": {Head{Title: "a < b", Style: "p{}"}, "default-src 'none'; style-src " + hash(base+"p{}") + "; base-uri 'none'; form-action 'none'",
			[]string{"<title>a &lt; b</title>", "\np{}</style>", "light dark"}},
		"script": {Head{Script: "f()"}, "script-src 'sha256-", []string{"<script>f()</script>"}},
	} {
		var b strings.Builder
		require.NoError(t, page.Execute(&b, map[string]any{"Head": c.head, "Text": "<script>bad()</script>"}))
		if !strings.HasPrefix(b.String(), "<!doctype html>\n<html lang=\"en\">\n<head>\n") || strings.Contains(b.String(), "<script>bad") {
			t.Errorf("%s: %s", name, &b)
		}
		if !strings.Contains(html.UnescapeString(b.String()), c.policy) {
			t.Errorf("%s: the page lacks the policy %q:\n%s", name, c.policy, &b)
		}
		for _, part := range c.parts {
			if !strings.Contains(b.String(), part) {
				t.Errorf("%s: the page lacks %q:\n%s", name, part, &b)
			}
		}
	}
	if _, err := New("{{", nil); err == nil {
		t.Error("a template that is none is accepted")
	}
}
