//go:build cgo

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/internal/humanize"
)

// newMan makes the command by which 'make install' writes manual pages.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Hidden: true,
		Short:       "Write the manual pages, one for each command",
		Example:     "  infer man share/man/man1",
		Annotations: map[string]string{cli.UsesKey: ""},
		Args:        cli.Words(1, 1, "the directory of the pages", "DIR"),
		RunE: func(c *cobra.Command, args []string) error {
			root := c.Root()
			root.DisableAutoGenTag = true
			err := os.MkdirAll(args[0], 0o777)
			for _, of := range cli.AllCommands(root) {
				if err != nil || !of.IsAvailableCommand() && of != root {
					continue
				}
				root.PersistentFlags().VisitAll(func(f *pflag.Flag) { f.Hidden = !cli.Uses(of, f.Name) })
				file := filepath.Join(args[0], strings.ReplaceAll(of.CommandPath(), " ", "-")+".1")
				err = cli.WriteFile(c.Context(), file, func(w io.Writer) error {
					return doc.GenMan(of, &doc.GenManHeader{Section: "1", Source: "gpt2scope"}, w)
				})
			}
			if err != nil {
				return fmt.Errorf("the manual pages cannot be written: %w", humanize.Cause(err))
			}
			return nil
		},
	}
}
