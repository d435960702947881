package plot

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"html"
	"image/png"
	"io"
	"strings"

	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// pngScale is how many pixels of a PNG are one of the layout, for sharp letters on
// dense screens.
const pngScale = 2

// asPNG draws panels as PNG.
func asPNG(l layout, title string, panels []*panel) ([]byte, error) {
	w, h := l.size(len(panels))
	c := vgimg.NewWith(vgimg.UseWH(w, h), vgimg.UseDPI(72*pngScale))
	drawPanels(draw.New(c), l, title, panels)
	var b bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	err := encoder.Encode(&b, c.Image())
	return b.Bytes(), err
}

// asSVG draws panels as an SVG element.
func asSVG(l layout, title string, panels []*panel) ([]byte, error) {
	w, h := l.size(len(panels))
	c := vgsvg.New(w, h)
	drawPanels(draw.New(c), l, title, panels)
	var b, out bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return nil, err
	}
	if err := plain(&out, &b, float64(w), float64(h), title); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// fonts are for systems with and without the font that sizes were computed for; all
// have its widths or nearly so.
const fonts = "Liberation Sans, Arial, Helvetica, sans-serif"

// plain rewrites an SVG document without style attributes, which the page's policy
// refuses: their properties become attributes, as SVG allows for all that are used.
// Lengths are pixels, and the picture has a name for those who can't see it.
func plain(to *bytes.Buffer, from io.Reader, width, height float64, title string) error {
	d := xml.NewDecoder(from)
	depth := 0
	for {
		token, err := d.Token()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the picture %q can't be written: %w", title, err)
		}
		switch t := token.(type) {
		case xml.StartElement:
			depth++
			if depth == 1 {
				name := html.EscapeString(title)
				fmt.Fprintf(to, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" viewBox=\"0 0 %g %g\" role=\"img\" aria-label=\"%s\" font-family=\"%s\">\n", width, height, width, height, name, fonts)
				continue
			}
			fmt.Fprintf(to, "<%s", t.Name.Local)
			for _, a := range t.Attr {
				if a.Name.Local != "style" {
					fmt.Fprintf(to, " %s=\"%s\"", a.Name.Local, html.EscapeString(a.Value))
					continue
				}
				for property := range strings.SplitSeq(a.Value, ";") {
					name, value, ok := strings.Cut(property, ":")
					name, value = strings.TrimSpace(name), strings.TrimSpace(value)
					switch {
					case !ok, name == "font-family", name == "font-variant":
					case value == "normal":
					default:
						fmt.Fprintf(to, " %s=\"%s\"", name, html.EscapeString(value))
					}
				}
			}
			to.WriteString(">")
		case xml.EndElement:
			depth--
			fmt.Fprintf(to, "</%s>\n", t.Name.Local)
		case xml.CharData:
			if depth > 1 {
				to.WriteString(html.EscapeString(strings.Trim(string(t), "\n")))
			}
		}
	}
}
