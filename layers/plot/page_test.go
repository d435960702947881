package plot

import (
	"crypto/sha256"
	"encoding/base64"
	"regexp"
	"strings"
	"testing"

	"gpt2scope/layers"
)

// words are a page's text, its elements replaced by spaces.
func words(page string) string {
	text := regexp.MustCompile(`<[^>]*>`).ReplaceAllString(page, " ")
	return strings.Join(strings.Fields(strings.ReplaceAll(text, nbsp, " ")), " ")
}

// pageOf is the page of a result.
func pageOf(t *testing.T, r *layers.Result) string {
	t.Helper()
	page, err := newPage(r, figures(r))
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

func TestPageHasTheNumbers(t *testing.T) {
	page := pageOf(t, full())
	text := words(page)
	for _, want := range []string{
		"Decode: a layer costs 0.04117 ± 0.00022 ms, everything else 0.1179 ± 0.0011 ms; of the time at 6 layers, the layers are 68 %; by the stage trace 0.04190 ms and 0.1120 ms.",
		"prefill a , everything but the layers, less what the last layer saves 0.3121 0.0041 ms 0.3171 &#43;0.0050 &#43;1.6 0.999762 1-6",
		"b , a layer 0.14163 0.00091 ms 0.14090 -0.00073 -0.5",
		"2 -0.00300 -0.50 -0.000200 -0.10",                             // residuals
		"9 prefill time 1.587 1.537 to 1.637 1.603 ms -0.99 yes",       // a prediction and its error
		"12 decode time 0.6119 0.5999 to 0.6239 - ms - -",              // one that was not run
		"9 device memory 657.8 651.2 to 664.4 655.2 MiB &#43;0.40 yes", // in a unit that suits
		"repeat 3 7 0-3, 3-5",
		"52,773,120", "11.78", // parameters, GFLOP of the prefill
		"The clocks were not locked.",
		"prompt length 128", "depths 1, 2, 3", "seed -",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	for i, v := range full().Variants {
		for _, name := range []string{"prefill time", "bits per byte"} {
			m := v.Metrics[name]
			d := decimals(m.Median)
			if want := fixed(m.Median, d) + " " + fixed(m.Low, d) + " to " + fixed(m.High, d); !strings.Contains(text, want) {
				t.Errorf("the page has no %q, the %s of variant %d", want, name, i)
			}
		}
	}
	if strings.Count(page, "<svg") != 14 { // seven panels, for wide and narrow windows
		t.Errorf("the page has %d pictures", strings.Count(page, "<svg"))
	}
}

func TestPolicy(t *testing.T) {
	page := pageOf(t, full())
	style := page[strings.Index(page, "<style>")+len("<style>") : strings.Index(page, "</style>")]
	sum := sha256.Sum256([]byte(style))
	policy := regexp.MustCompile(`Content-Security-Policy" content="([^"]*)"`).FindStringSubmatch(page)
	want := "default-src &#39;none&#39;; style-src &#39;sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "&#39;; base-uri &#39;none&#39;; form-action &#39;none&#39;"
	if policy == nil || strings.ReplaceAll(strings.ReplaceAll(policy[1], "'", "&#39;"), "&#43;", "+") != want {
		t.Errorf("the policy is %q, want %q", policy, want)
	}
	for _, refused := range []string{"<script", " style=", "href=", "src=", "url(", "<link", "@import"} {
		if strings.Contains(page, refused) {
			t.Errorf("the page has %q", refused)
		}
	}
}

func TestHostileText(t *testing.T) {
	const script = `"><script>alert(1)</script><img src=x onerror=alert(2)>`
	hostile := script + "\x00\x1b[31m\xff\u2028]]>&amp;'" + strings.Repeat("long ", 300)
	r := full()
	r.Configuration = map[string]any{hostile: hostile, "nested": map[string]any{hostile: []any{hostile, 1.5, nil, true}}, "other": []byte(hostile)}
	r.Command = []string{"infer", hostile}
	r.Notes = []string{hostile}
	for i := range r.Variants {
		v := &r.Variants[i]
		v.Label = hostile
		for name, m := range v.Metrics {
			m.Unit = hostile
			v.Metrics[name] = m
		}
		v.Metrics[hostile] = layers.Metric{Unit: hostile, Median: 1, Low: 1, High: 1, N: 1}
	}
	for i := range r.Fits {
		r.Fits[i].Unit = hostile
	}
	r.Fits[1].Phase = hostile
	r.Predictions[0].Unit = hostile
	r.Predictions[1].Metric = hostile
	files := written(t, r) // which reads the SVG files
	page := string(files["layers.html"])
	for _, refused := range []string{"<script", "<img", "\x00", "\x1b"} {
		for _, name := range []string{"layers.html", "time.svg", "quality-time.svg"} {
			if name == "layers.html" && (refused == "\x1b" || refused == "\x00") {
				continue // html/template writes them as they are or replaces them
			}
			if strings.Contains(string(files[name]), refused) {
				t.Errorf("%s has %q", name, refused)
			}
		}
	}
	if !strings.Contains(page, "&lt;script&gt;alert(1)&lt;/script&gt;") {
		t.Error("the page does not show the text")
	}
	_, texts := paths(t, files["quality-time.svg"])
	for _, text := range texts {
		if strings.Contains(text, "script") && !strings.HasSuffix(text, "…") && len(text) < 60 {
			t.Errorf("a label is %q", text)
		}
	}
}

func TestFormats(t *testing.T) {
	for got, want := range map[string]string{
		number(1234567):                        "1,234,567",
		number(-0.0412345):                     "-0.04123",
		number(12.3456):                        "12.35",
		number(0):                              "0",
		number(1e300):                          "1e+300",
		fixed(-0.0001, 2):                      "0.00",
		signed(0.0001, 2):                      "0.00",
		signed(0.02, 2):                        "+0.02",
		whole(24):                              "24",
		runs([]int{0, 1, 2, 3, 2, 5, 6, 7, 9}): "0-3, 2, 5-7, 9",
		shortLabel("order " + strings.Repeat("1,0,", 20)):       "order 1,0,1,0,1,0,1,0,1,0…",
		commandLine([]string{"infer", "-o", "a b", "it's", ""}): `infer -o 'a b' 'it'\''s' ''`,
		withError(0.0412, 0.00022, "ms"):                        "0.04120 ± 0.00022" + nbsp + "ms",
		clean("a\x00b\n"):                                       "a b ",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for _, c := range []struct {
		unit string
		v    float64
		want string
		by   float64
	}{{"bytes", 3 << 30, "GiB", 1 << 30}, {"bytes", 100, "bytes", 1}, {"FLOPs", 2e9, "GFLOP", 1e9}, {"ms", 1e9, "ms", 1}} {
		if unit, by := scaled(c.unit, c.v); unit != c.want || by != c.by {
			t.Errorf("%v %s is in %s, %v each", c.v, c.unit, unit, by)
		}
	}
}
