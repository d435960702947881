//go:build cgo

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/internal/humanize"
)

// roff writes text so that troff shows it as it stands.
var roff = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "\n.", "\n\\&.")

// newMan makes the command by which 'make install' writes manual pages: the help of each command.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Hidden: true,
		Short:       "Write the manual pages, one for each command",
		Example:     "  infer man share/man/man1",
		Annotations: map[string]string{cli.UsesKey: ""},
		Args:        cli.Words(1, 1, "the directory of the pages", "DIR"),
		RunE: func(c *cobra.Command, args []string) error {
			root := c.Root()
			err := os.MkdirAll(args[0], 0o777)
			for _, of := range cli.AllCommands(root) {
				if err != nil || !of.IsAvailableCommand() && of != root {
					continue
				}
				name := strings.ReplaceAll(of.CommandPath(), " ", "-")
				err = cli.WriteFile(c.Context(), filepath.Join(args[0], name+".1"), func(w io.Writer) error {
					fmt.Fprintf(w, ".TH %s 1 \"\" gpt2scope\n.SH NAME\n%s\n.SH DESCRIPTION\n.EX\n", strings.ToUpper(name),
						roff.Replace(name+" - "+of.Short))
					var help strings.Builder
					of.SetOut(&help)
					err := of.Help()
					fmt.Fprintf(w, "%s.EE\n", roff.Replace(help.String()))
					return err
				})
			}
			if err != nil {
				return fmt.Errorf("the manual pages cannot be written: %w", humanize.Cause(err))
			}
			return nil
		},
	}
}
