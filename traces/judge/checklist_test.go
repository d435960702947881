package judge

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"gpt2scope/traces/tables"
)

// numbers are indicators by their keys.
type numbers map[string]float64

func (n numbers) Value(key string) (float64, bool) { v, ok := n[key]; return v, ok }
func (n numbers) RecordWith(key string) string     { return key }

// TestChecks: what the indicators say decides the answers, and each answer that is not no says what
// to do next.
func TestChecks(t *testing.T) {
	launchBound := map[string]float64{"kernel_median": 2000, "launch_latency": 8000, "starved_percent": 80, "compute_percent": 10}
	with := func(values map[string]float64, key string, v float64) map[string]float64 {
		values = maps.Clone(values)
		values[key] = v
		return values
	}
	idle := &tables.Table{Rows: []tables.Row{{Kind: tables.RowIdle, Name: tables.IdleSync, Exclusive: 5e5}, {Kind: tables.RowIdle, Name: tables.IdleHost, Exclusive: 2e5}, {Kind: tables.RowIdle, Name: tables.IdleHost, Exclusive: 1e5}}}
	for _, c := range []struct {
		question       string // a word of it
		values         map[string]float64
		answer         Answer
		evidence, next string
	}{
		{"transfers", map[string]float64{"transfer_time": 3e5, "compute_percent": 20, "compute_copy_overlap_percent": 10, "h2d_pageable_time": 1e5}, Yes, "copies and sets run for 0.300 ms, kernels for 0.200 ms; a kernel runs beside them for 10.0 %", "pinned memory"},
		{"transfers", map[string]float64{"transfer_time": 3e5, "compute_percent": 20, "compute_copy_overlap_percent": 80}, Yes, "80.0 %", "in large pieces"},
		{"transfers", map[string]float64{"transfer_time": 1e5, "compute_percent": 20}, No, "0.100 ms", ""},
		{"transfers", map[string]float64{"transfer_time": 0, "compute_percent": 20}, No, "there are no copies and sets; kernels run for 0.200 ms", ""},
		{"transfers", map[string]float64{"compute_percent": 20}, Unknown, "is not in this recording", "record it with"},
		{"CPU be faster", launchBound, Unknown, "faster if it needs less than 10.0 times their time", "measure the same work on the CPU"},
		{"CPU be faster", with(launchBound, "compute_percent", 2), Yes, "less than 50.0 times", "measure"},
		{"CPU be faster", with(launchBound, "starved_percent", 20), No, "no work for 20.0 %", ""},
		{"CPU be faster", with(launchBound, "kernel_median", 9000), No, "takes 9.00 us", ""},
		{"CPU be faster", with(launchBound, "launch_latency", 0), No, "always had work queued", ""},
		{"poorly used", map[string]float64{"gpu_busy_percent": 30}, Yes, "works for 30.0 % of the time; idle: synchronisation 0.500 ms, host late 0.300 ms", ".item()"},
		{"poorly used", map[string]float64{"gpu_busy_percent": 95, "grid_fill_percent": 20}, Yes, "blocks for 20.0 % of the SMs", "grids of more blocks"},
		{"poorly used", map[string]float64{"gpu_busy_percent": 95, "grid_fill_percent": 90, "sm_utilisation_percent": 30}, Yes, "30.0 % of the SMs are active", "infer trace advise"},
		{"poorly used", map[string]float64{"gpu_busy_percent": 95, "grid_fill_percent": 90}, No, "95.0 %", ""},
		{"poorly used", nil, Unknown, "work of a GPU is not in this recording", "record it with gpu_busy_percent"},
		{"memory bandwidth", map[string]float64{"dram_throughput_percent": 80, "sm_throughput_percent": 20}, Yes, "80.0 % of the memory's peak bandwidth on average, and 20.0 % of what the SMs can do", "fewer bytes"},
		{"memory bandwidth", map[string]float64{"dram_throughput_percent": 10, "sm_throughput_percent": 90}, No, "10.0 %", "the SMs are the limit"},
		{"memory bandwidth", map[string]float64{"dram_throughput_percent": 10, "sm_throughput_percent": 10}, No, "10.0 %", "neither is at its limit"},
		{"memory bandwidth", map[string]float64{"dram_bandwidth_percent": 40, "compute_percent": 50}, Yes, "80.0 %", "fewer bytes"},
		{"diverge", map[string]float64{"warp_efficiency_percent": 40}, Yes, "40.0 % of the threads", "same branch"},
		{"diverge", map[string]float64{"warp_efficiency_percent": 99}, No, "99.0 %", ""},
	} {
		checks := Checklist(numbers(c.values), 1e6, idle)
		got := checks[slices.IndexFunc(checks, func(k Check) bool { return strings.Contains(k.Question, c.question) })]
		if got.Answer != c.answer || !strings.Contains(got.Evidence, c.evidence) || !strings.Contains(got.Next, c.next) || c.answer == No && c.next == "" && got.Next != "" {
			t.Errorf("%v: %+v", c.values, got)
		}
	}
}
