package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"gpt2scope/gpt2"
	"gpt2scope/tasks"
	"gpt2scope/traces/tables"
)

// flagValues are what a shell completes after a flag, or after a flag of one command.
var flagValues = map[string][]string{
	"device": {"auto", "cpu", "cuda", "reference"}, "dtype": {"bf16", "f32", "q8"}, "mode": {"auto", "eager", "graph", "persistent"}, "layers": {"all"},
	"phase": {"decode", "prefill"}, "logits": {"all", "last"}, "recorder": {"cupti", "host", "stamps"}, "format": {"csv", "json", "table"}, "columns": {"all", "main"},
	"output": {"csv", "json", "md"}, "held-out": {"nothing", "sizes", "task"}, "profile": Texts(tables.Bys), "stage": StagesAs("h.0."), "tasks": taskNames(),
	"model":             {"random:gpt2", "random:gpt2-large", "random:gpt2-medium", "random:gpt2-xl"},
	"infer --recorder":  {"auto", "cupti", "stamps"},
	"info --by":         {"folded", "stage"},
	"trace show --by":   Texts(tables.Bys),
	"trace diff --by":   {"folded", "kernel", "layer", "op", "stage"},
	"bench inside --by": {"sm", "stage"}, "bench energy --stage": StagesAs(""),
	"tasks simulate --memory": {"pageable", "pinned", "resident"},
	"export --dtype":          {"bf16", "f32"},
}

// completeFlag returns what completes the values of a flag. Files complete a model too.
func completeFlag(name string) cobra.CompletionFunc {
	return func(c *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		values, ok := flagValues[strings.TrimPrefix(c.CommandPath(), c.Root().Name()+" ")+" --"+name]
		if !ok {
			values = flagValues[name]
		}
		if len(values) == 0 || name == "model" {
			return values, cobra.ShellCompDirectiveDefault
		}
		return values, cobra.ShellCompDirectiveNoFileComp
	}
}

// Texts are the words of a list of named values.
func Texts[T ~string](values []T) (words []string) {
	for _, v := range values {
		words = append(words, string(v))
	}
	return words
}

// StagesAs are the names of stages with an output, those within a layer after a prefix.
func StagesAs(layer string) (names []string) {
	for s := range gpt2.StageSample {
		if info := s.Info(); info.InLayer {
			names = append(names, layer+info.Name)
		} else {
			names = append(names, info.Name)
		}
	}
	return names
}

// taskNames are the names of the tasks of 'infer tasks bench'.
func taskNames() (names []string) {
	for _, t := range tasks.All() {
		names = append(names, t.Name)
	}
	return names
}
