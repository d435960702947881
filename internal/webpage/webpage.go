// Package webpage has what every page of HTML begins with: a first style, and a head whose policy allows the style and
// the script of the page and nothing else, so that a page that holds text of a recording loads and runs nothing of it.
package webpage

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
)

//go:embed head.html
var head string

//go:embed base.css
var base string

// Head is the head of a page.
type Head struct {
	Title  string
	Style  template.CSS // of the page alone, after what all pages have
	Script template.JS  // the page has it at its end, in an element without spaces around it; "" if it has none
}

// New makes the template of a page whose text begins with {{template "head" .Head}}, where Head is one.
func New(text string, functions template.FuncMap) (*template.Template, error) {
	t, err := template.New("head").Parse(head)
	if err != nil {
		return nil, err
	}
	return t.New("page").Funcs(functions).Parse(text)
}

// CSS is the whole style of the page.
func (h Head) CSS() template.CSS { return template.CSS(base) + h.Style }

// Policy is the Content-Security-Policy of the page.
func (h Head) Policy() string {
	style, script := hash(string(h.CSS())), ""
	if h.Script != "" {
		script = "script-src " + hash(string(h.Script)) + "; "
	}
	return "default-src 'none'; style-src " + style + "; " + script + "base-uri 'none'; form-action 'none'"
}

// hash identifies a script or a style in a policy.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
