package report

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"gpt2scope/internal/require"
	"gpt2scope/traces/internal/samples"
)

// maxPicture bounds the size of a picture of the README.
const maxPicture = 200_000

// TestPictures makes the pictures of the README for 'make pictures'. Without GPT2SCOPE_PICTURES it checks that they can
// be made and are not blank.
func TestPictures(t *testing.T) {
	dir := os.Getenv("GPT2SCOPE_PICTURES")
	if dir == "" {
		dir = t.TempDir()
	}
	for _, p := range []struct {
		name, scheme  string
		width, height int64
	}{{"report-wide.png", "light", 1440, 1580}, {"report-narrow.png", "dark", 390, 1507}} {
		const name = "gpt2-L12-eager-cupti.json.gz"
		b := openAs(t, name, samples.Load(t, name), p.width, p.height)
		b.scheme(p.scheme)
		eval[any](b, `gpt2scope.fit()`)
		shot := require.Value(chromedp.Call(b.Context, cdppage.CaptureScreenshot, cdppage.CaptureScreenshotParams{Format: cdppage.CaptureScreenshotFormatPng}))(t)
		picture := require.Value(fewColours(shot.Data))(t)
		if len(picture) < 10_000 || len(picture) > maxPicture {
			t.Errorf("%s has %d bytes", p.name, len(picture))
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, p.name), picture, 0o666))
	}
}

// fewColours writes a picture with its 256 most frequent colours, which makes the file several times smaller. The
// others, at the edges of letters, become the nearest of them.
func fewColours(data []byte) ([]byte, error) {
	from, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	counts := map[color.RGBA]int{}
	size := from.Bounds()
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(from.At(x, y)).(color.RGBA) }
	for y := size.Min.Y; y < size.Max.Y; y++ {
		for x := size.Min.X; x < size.Max.X; x++ {
			counts[at(x, y)]++
		}
	}
	frequent := slices.SortedFunc(maps.Keys(counts), func(a, b color.RGBA) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a.R, b.R), cmp.Compare(a.G, b.G), cmp.Compare(a.B, b.B))
	})
	var palette color.Palette
	for _, c := range frequent[:min(256, len(frequent))] {
		palette = append(palette, c)
	}
	nearest := map[color.RGBA]uint8{}
	for c := range counts {
		nearest[c] = uint8(palette.Index(c))
	}
	to := image.NewPaletted(size, palette)
	for y := size.Min.Y; y < size.Max.Y; y++ {
		for x := size.Min.X; x < size.Max.X; x++ {
			to.SetColorIndex(x, y, nearest[at(x, y)])
		}
	}
	var b bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	err = encoder.Encode(&b, to)
	return b.Bytes(), err
}
