package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
)

// tokenizeFlags are the flags of "infer tokenize".
type tokenizeFlags struct {
	in   cli.InputFlags
	json bool
}

// newTokenize makes "infer tokenize".
func newTokenize(m *cli.ModelFlags) *cobra.Command {
	var t tokenizeFlags
	c := &cobra.Command{
		Use:   "tokenize -p TEXT",
		Short: "Show the tokens of a text, or of ids",
		Long: `tokenize shows the tokens of a text, or of ids: each id with its piece of the text,
quoted. A piece may be a part of a character; \x escapes show its bytes. An empty text has no
tokens; without a text, it shows the token that generation begins with.`,
		Example: `  infer tokenize -p "ROMEO:"
  infer tokenize -m random:gpt2 -f play.txt
  infer tokenize -m random:gpt2 --ids 15496,995 --json`,
		Annotations: map[string]string{cli.ArgumentKey: "-p", cli.UsesKey: "model quiet"},
		RunE: func(c *cobra.Command, _ []string) error {
			t.in.EmptyIsNone = true
			return t.run(c.Context(), m, c.InOrStdin(), c.OutOrStdout())
		},
	}
	t.in.Use = "show the tokens of"
	cli.AddFlags(c.Flags(), "Text", t.in.Register)
	cli.AddFlags(c.Flags(), "Output", func(f *pflag.FlagSet) {
		f.BoolVar(&t.json, "json", false, "print one JSON object: ids, pieces, and their bytes in\nhexadecimal")
	})
	return c
}

func (t *tokenizeFlags) run(ctx context.Context, m *cli.ModelFlags, stdin io.Reader, stdout io.Writer) error {
	model, err := m.OpenModel()
	if err != nil {
		return err
	}
	defer model.Close()
	t.in.Notice = m.Notice
	ids, err := t.in.Tokens(ctx, model, stdin)
	if err != nil {
		return err
	}
	if model.Tokenizer == nil {
		return fmt.Errorf("model %s has no tokenizer", model.Name)
	}
	if err := model.Tokenizer.Check(ids); err != nil {
		return err
	}
	if t.json {
		pieces, hexes := make([]string, len(ids)), make([]string, len(ids))
		for i, id := range ids {
			piece := model.Tokenizer.AppendPiece(nil, id)
			pieces[i], hexes[i] = string(piece), hex.EncodeToString(piece)
		}
		return cli.WriteJSON(stdout, tokensJSON{ids, pieces, hexes})
	}
	var b bytes.Buffer
	for _, id := range ids {
		if b.Len() > 1<<16 { // a long text is shown as it is formatted, and Ctrl-C ends it
			if err := cli.WriteOutput(stdout, b.Bytes()); err != nil {
				return err
			}
			if b.Reset(); ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
		fmt.Fprintf(&b, "%6d  %q\n", id, model.Tokenizer.AppendPiece(nil, id))
	}
	return cli.WriteOutput(stdout, b.Bytes())
}

// tokensJSON is what tokenize --json prints: for each token its id, its text, and the bytes of
// its text in hexadecimal.
type tokensJSON struct {
	IDs    []int32  `json:"ids"`
	Pieces []string `json:"pieces"` // text of each; parts of characters are replaced by U+FFFD
	Bytes  []string `json:"bytes"`  // bytes of each, in hexadecimal
}
