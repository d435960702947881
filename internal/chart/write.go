package chart

import (
	"bytes"
	"fmt"
	"html"
	"html/template"
	"image/color"
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"gpt2scope/internal/lazyregexp"
)

// PNG draws the picture with two pixels for one of SVG, so that letters are sharp on dense screens.
func (p Picture) PNG() ([]byte, error) {
	p = p.drawable()
	c := vgimg.NewWith(vgimg.UseWH(pictureWidth, p.height()), vgimg.UseDPI(2*72))
	p.draw(draw.New(c))
	var b bytes.Buffer
	_, err := vgimg.PngCanvas{Canvas: c}.WriteTo(&b)
	return b.Bytes(), err
}

// SVG draws the picture as a document.
func (p Picture) SVG() ([]byte, error) { return p.drawable().svg(p.Title) }

// HTML draws the picture for a page, which needs [Style]. Its title is not drawn, but named to who cannot see it.
func (p Picture) HTML() (template.HTML, error) {
	name := p.Title
	p.Title = ""
	svg, err := p.drawable().svg(name)
	return template.HTML(`<div class="chart">` + string(svg) + `</div>`), err // all text is escaped
}

// Style is the CSS of pages with pictures: they scroll where there is little room, and have other colours if the
// browser prefers dark.
func Style() template.CSS {
	css := `.chart { overflow-x: auto; }
.chart svg { display: block; width: 100%; height: auto; min-width: 600px; max-width: 760px; }
@media (prefers-color-scheme: dark) {
`
	light := append([]color.RGBA{paper, ink, soft, grid}, colours[:8]...) // the other colours are light enough
	for i, dark := range []string{"#171b21", "#e3e7ec", "#97a1ad", "#262c34", "#6cb0f5", "#f0a050", "#6cc796", "#c79be0",
		"#ee8298", "#6fcbd8", "#cdbb55", "#97a1ad"} {
		css += fmt.Sprintf(".chart [fill=\"%[1]s\"] { fill: %[2]s; } .chart [stroke=\"%[1]s\"] { stroke: %[2]s; }\n",
			hex(light[i]), dark)
	}
	return template.CSS(css + "}\n")
}

// hex names a colour as SVG and CSS do.
func hex(c color.RGBA) string { return fmt.Sprintf("#%02X%02X%02X", c.R, c.G, c.B) }

var (
	control = lazyregexp.New(`[\x00-\x08\x0b-\x1f\x7f-\x{9f}\x{fffe}\x{ffff}]`) // XML cannot hold it
	styled  = lazyregexp.New(`\s+style="([^"]*)"`)
)

// svg draws the picture. A policy of a page refuses style attributes: their properties become attributes, as SVG allows
// for all that are used.
func (p Picture) svg(name string) ([]byte, error) {
	w, h := vg.Length(pictureWidth), p.height()
	c := vgsvg.New(w, h)
	p.draw(draw.New(c))
	var b bytes.Buffer
	_, err := c.WriteTo(&b)
	_, body, _ := strings.Cut(b.String(), "xlink\">\n")
	body = styled().ReplaceAllStringFunc(body, func(style string) (out string) {
		for property := range strings.SplitSeq(styled().FindStringSubmatch(style)[1], ";") {
			name, value, _ := strings.Cut(strings.TrimSpace(property), ":")
			if name != "" && name != "font-family" && value != "normal" {
				out += fmt.Sprintf(" %s=\"%s\"", name, value)
			}
		}
		return out
	})
	head := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%g" height="%g" viewBox="0 0 %[1]g %[2]g"`, w, h)
	head += fmt.Sprintf(" role=\"img\" aria-label=\"%s\" font-family=\"%s\">\n", html.EscapeString(name),
		"Liberation Sans, Arial, Helvetica, sans-serif") // places are computed for the first; the others are about as wide
	return []byte(control().ReplaceAllString(strings.ToValidUTF8(head+body, "\ufffd"), " ")), err
}
