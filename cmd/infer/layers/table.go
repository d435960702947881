package layers

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/internal/table"
	"gpt2scope/layers"
	"gpt2scope/layers/plot"
)

func writeLayers(w io.Writer, r *layers.Result) {
	var s cli.Setting
	if text, err := json.Marshal(r.Configuration); err == nil {
		_ = json.Unmarshal(text, &s) // fields that are not words or numbers are left out
	}
	if lead := plot.Lead(r); len(lead) > 0 {
		fmt.Fprintf(w, "%s\n\n", strings.Join(lead, "\n"))
	}
	fmt.Fprintf(w, "%s, %s, %s\n", s.Model, s.Place(), s.DType)
	for _, t := range plot.Tables(r) {
		fmt.Fprintf(w, "\n%s\n", t.Title)
		table.Align(w, func(int) bool { return false }, append([][]string{t.Heads}, t.Rows...))
	}
	if best, share := r.BestDraft(); best != nil {
		fmt.Fprintf(w, "\nfastest drafts: --speculate exits=%d,%.0f; a token takes %.2f of its time without\n", best.Layers,
			best.Metrics["drafts"].Median, share)
	}
	if len(r.Notes) > 0 {
		fmt.Fprintf(w, "\n%s\n", strings.Join(r.Notes, "\n"))
	}
}
