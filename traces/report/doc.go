// Package report writes a recording as one HTML page: where the time went, in a sentence, a timeline, tables and
// pictures.
//
// # The page
//
// The page is one file that refers to no other. Its content security policy (default-src 'none', and the hashes of its
// own style and script) makes the browser refuse everything else, so that the page of a hostile recording can load and
// run nothing.
//
// Go writes text and tables with html/template, so that they can be read without the script: the summary, what the
// recording lacks, the advice, the table of [tables.Summarize], the longest gaps, the indicators, the device. A script
// draws what depends on the width of the window or on a selection: timeline, what the SMs did, the kernels of a stage.
//
// # Events
//
// The page holds events as numbers: see [columns]. A track of the timeline has bands. Events of a band do not
// overlap, so that the script finds the visible ones by binary search and draws at most about one rectangle per pixel
// and band.
package report
