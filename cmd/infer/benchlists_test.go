package main

import (
	"encoding/csv"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gpt2scope/cmd/infer/bench"
)

// Every combination of the lists is a row, in the order of the lists; the formats have the same rows.
func TestBenchLists(t *testing.T) {
	args := func(lists ...string) []string {
		return append([]string{"bench", "-m", tiny, "-p", "5", "-n", "3,4", "--layers", "1,all", "--repeat", "2"}, lists...)
	}
	var want []string
	for _, dtype := range []string{"f32", "q8"} {
		for _, layers := range []int{1, 2} {
			for _, threads := range []int{1, 2} {
				for _, batch := range []int{1, 2} {
					for _, test := range []string{"pp5", "tg3", "tg4", "pp5 @ d2", "tg3 @ d2", "tg4 @ d2"} {
						want = append(want, fmt.Sprintf("%s %d %d %d %s", dtype, layers, threads, batch, test))
					}
				}
			}
		}
	}
	var rows []bench.ListRow
	printed := []byte(mustInfer(t, args("-d", "0,2", "-t", "1,2", "--dtype", "f32,q8", "--batch", "1,2", "-o", "json")...).stdout)
	unmarshal(t, string(printed), &rows)
	name := func(prompt, gen, depth int) string {
		s := fmt.Sprintf("pp%d", prompt)
		if gen > 0 {
			s = fmt.Sprintf("tg%d", gen)
		}
		if depth > 0 {
			s += fmt.Sprintf(" @ d%d", depth)
		}
		return s
	}
	var got []string
	for _, r := range rows {
		got = append(got, fmt.Sprintf("%s %d %d %d %s", r.DType, r.Layers, r.Threads, r.Batch, name(r.Prompt, r.Gen, r.Depth)))
		if len(r.SamplesNS) != 2 || len(r.SamplesTS) != 2 || r.AvgTS <= 0 || r.AvgNS <= 0 || r.AvgNS != (r.SamplesNS[0]+r.SamplesNS[1])/2 || r.Backend != "CPU" || r.CPU == "" || r.OfLayers != 2 {
			t.Errorf("row %+v", r)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("rows %q,\nexpected %q", got, want)
	}

	// The other formats, of some of the rows.
	rows = slices.DeleteFunc(rows, func(r bench.ListRow) bool { return r.Threads != 1 || r.Depth != 0 || r.DType != "f32" })
	some := args("-t", "1", "--batch", "1,2")
	want = nil
	for _, r := range rows {
		want = append(want, fmt.Sprintf("%s %d %d %d %s", r.DType, r.Layers, r.Threads, r.Batch, name(r.Prompt, r.Gen, r.Depth)))
	}
	if len(want) != 12 {
		t.Fatalf("%d rows", len(want))
	}
	table, err := csv.NewReader(strings.NewReader(mustInfer(t, append(some, "-o", "csv")...).stdout)).ReadAll()
	if err != nil || len(table) != 1+len(want) {
		t.Fatalf("%d lines of CSV (%v), expected %d", len(table), err, 1+len(want))
	}
	text := mustInfer(t, some...).stdout
	if n := strings.Count(text, " ± "); n != len(want) || !strings.HasPrefix(text, "| model ") {
		t.Errorf("%d rows are printed, expected %d:\n%s", n, len(want), text)
	}
}

func TestBenchListsRefused(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"bench", "-p", "1,"}, "--n-prompt 1,: it must be a whole number"},
		{[]string{"bench", "-p", "0", "-n", "0"}, "nothing to measure"},
		{[]string{"bench", "-m", tiny, "-p", "64", "-d", "1"}, "pp64 @ d1 takes 65 tokens, and the context holds 64 tokens; give less"},
		{[]string{"bench", "-t", "1,-2"}, "--threads 1,-2"},
		{[]string{"bench", "--dtype", "f32,f8"}, "--dtype f32,f8: it must be f32, bf16 or q8"},
		{[]string{"bench", "--device", "cpu,gpu"}, "--device gpu"},
		{[]string{"bench", "--layers", "1,x"}, "--layers 1,x"},
		{[]string{"bench", "-p", "4", "--past", "1"}, "--past cannot be combined with lists"},
		{[]string{"bench", "energy", "-t", "1,2"}, "--threads 1,2: give one value"},
		{[]string{"-p", "x", "--dtype", "f32,bf16"}, "--dtype f32,bf16: give one value; only 'infer bench' takes a list"},
	} {
		checkFailure(t, infer(t, c.args...), exitUsage, c.says)
	}
}
