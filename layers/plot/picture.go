package plot

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"html"
	"image"
	"image/color"
	"image/png"
	"io"
	"strconv"
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"gpt2scope/internal/palette"
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
	pixels, ok := c.Image().(image.RGBA64Image)
	if !ok {
		return nil, fmt.Errorf("the picture %q has pixels of another form than expected", title)
	}
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	err := encoder.Encode(&b, indexed(pixels))
	return b.Bytes(), err
}

// indexed is a picture in the colours that are drawn with and 35 blends of each with
// the paper, which are what smooth edges have: the file is less than half as large.
func indexed(from image.RGBA64Image) image.Image {
	const steps = 36
	colours := color.Palette{palette.Paper}
	for _, c := range []color.RGBA{palette.Ink, palette.Soft, palette.Grid, palette.Blue, palette.Orange, palette.Green, palette.Purple} {
		for i := 1; i <= steps; i++ {
			mix := func(c, p uint8) uint8 { return uint8((int(c)*i + int(p)*(steps-i)) / steps) }
			colours = append(colours, color.RGBA{mix(c.R, palette.Paper.R), mix(c.G, palette.Paper.G), mix(c.B, palette.Paper.B), 0xff})
		}
	}
	bounds := from.Bounds()
	to := image.NewPaletted(bounds, colours)
	nearest := map[color.RGBA]uint8{}
	var last color.RGBA // most pixels are like the one before; none is transparent
	var index uint8
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			c := from.RGBA64At(x, y)
			pixel := color.RGBA{uint8(c.R >> 8), uint8(c.G >> 8), uint8(c.B >> 8), 0xff}
			if pixel != last {
				i, ok := nearest[pixel]
				if !ok {
					i = uint8(colours.Index(pixel))
					nearest[pixel] = i
				}
				last, index = pixel, i
			}
			to.Pix[to.PixOffset(x, y)] = index
		}
	}
	return to
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
			if t.Name.Local == "text" {
				if err := plainText(to, d, t); err != nil {
					return err
				}
				depth--
				continue
			}
			if depth == 1 {
				name := html.EscapeString(title)
				fmt.Fprintf(to, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" viewBox=\"0 0 %g %g\" role=\"img\" aria-label=\"%s\" font-family=\"%s\">\n", width, height, width, height, name, fonts)
				continue
			}
			fmt.Fprintf(to, "<%s", t.Name.Local)
			plainAttributes(to, t)
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

// plainAttributes writes the attributes of an element, and the properties of its style
// as such.
func plainAttributes(to *bytes.Buffer, t xml.StartElement) {
	for _, a := range t.Attr {
		if a.Name.Local != "style" {
			fmt.Fprintf(to, " %s=\"%s\"", a.Name.Local, html.EscapeString(a.Value))
			continue
		}
		for property := range strings.SplitSeq(a.Value, ";") {
			name, value, ok := strings.Cut(property, ":")
			name, value = strings.TrimSpace(name), strings.TrimSpace(value)
			if !ok || name == "font-family" || name == "font-variant" || value == "normal" {
				continue
			}
			fmt.Fprintf(to, " %s=\"%s\"", name, html.EscapeString(value))
		}
	}
}

// plainText writes a text with the width that places were computed for, so that it
// takes no more in another font.
func plainText(to *bytes.Buffer, d *xml.Decoder, t xml.StartElement) error {
	var element struct {
		Style string `xml:"style,attr"`
		Text  string `xml:",chardata"`
	}
	if err := d.DecodeElement(&element, &t); err != nil {
		return err
	}
	var size float64
	for property := range strings.SplitSeq(element.Style, ";") {
		if value, ok := strings.CutPrefix(strings.TrimSpace(property), "font-size:"); ok {
			size, _ = strconv.ParseFloat(strings.TrimSuffix(value, "px"), 64)
		}
	}
	style := letters(vg.Length(size), palette.Ink, strings.Contains(element.Style, "font-weight:bold"))
	to.WriteString("<text")
	plainAttributes(to, t)
	if width := style.Width(element.Text); width > 0 {
		fmt.Fprintf(to, " textLength=\"%.1f\" lengthAdjust=\"spacingAndGlyphs\"", width.Points())
	}
	fmt.Fprintf(to, ">%s</text>\n", html.EscapeString(element.Text))
	return nil
}
