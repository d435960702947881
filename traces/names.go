package traces

import (
	"regexp"
	"strings"
)

// This file has all that is concluded from names. CUDA's API functions and copies, and the
// ranges of foreign files, say only by name what they are.

// Call is what an API call does.
type Call uint8

// The calls that are told apart.
const (
	CallOther        Call = iota
	CallLaunch            // launches a kernel
	CallGraphLaunch       // launches a graph
	CallBeginCapture      // from here on, calls of the thread record a graph and cause no work
	CallEndCapture        // until here
	CallLoad              // loads kernels
	CallSync              // waits for the work of a stream, event or device
	CallCopy              // copies or sets, and waits until that is done
)

// Call returns what an API call does; CallOther for other events.
func (e *Event) Call() Call {
	if !e.Kind.IsCall() {
		return CallOther
	}
	has := func(part string) bool { return strings.Contains(e.Name, part) }
	switch {
	case has("LaunchKernel"), has("LaunchCooperativeKernel"):
		return CallLaunch
	case has("GraphLaunch"):
		return CallGraphLaunch
	case has("StreamBeginCapture"):
		return CallBeginCapture
	case has("StreamEndCapture"):
		return CallEndCapture
	case has("ModuleLoad"), has("LibraryLoad"):
		return CallLoad
	case has("Synchronize"):
		return CallSync
	case (has("Memcpy") || has("Memset")) && !has("Async"):
		return CallCopy
	}
	return CallOther
}

// Pageable reports whether a copy is from or to pageable memory, and whether its source says
// so: "Memcpy HtoD (Pageable -> Device)".
func (e *Event) Pageable() (is, known bool) {
	return strings.Contains(e.Name, "Pageable"), e.Kind == KindMemcpy && strings.Contains(e.Name, "->")
}

// SetFactsOfName sets the fields that foreign files express only in the event's name: what
// an API call waits for, and whether a range is a warm-up. Readers of such files call it
// once per event.
func (e *Event) SetFactsOfName() {
	if e.Kind == KindRange {
		e.WarmUp = e.Name == "warm-up" || e.Name == "record graph"
	}
	switch e.Call() {
	case CallSync:
		e.Wait = WaitSync
	case CallCopy:
		e.Wait = WaitCopy
	}
}

var oneLayer = regexp.MustCompile(`\bh\.\d+(@\d+)?\.`)

// InAnyLayer replaces the layers in a step's name: "h.3.attn.c_attn" becomes
// "h.N.attn.c_attn". The layer that runs next becomes N+1: "h.3.residual_2+h.4.ln_1" becomes
// "h.N.residual_2+h.(N+1).ln_1". Layers with a slot ("h.3@1") are replaced too.
func InAnyLayer(step string) string {
	first := oneLayer.FindString(step)
	return oneLayer.ReplaceAllStringFunc(step, func(layer string) string {
		if layer == first {
			return "h.N."
		}
		return "h.(N+1)."
	})
}
