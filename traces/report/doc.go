// Package report writes a recording as one HTML page: where the time went, in a
// sentence, a timeline, tables and pictures.
//
// # The page
//
// It is one file without references to others. Its policy (default-src 'none', and
// the hashes of its own style and script) has the browser refuse all else, so that a
// page made of a hostile recording can load and run nothing.
//
// What is text or a table is written here, by html/template, and can be read without
// the script: the summary, what the recording lacks, the table of [traces.Summarize],
// idle time with its largest gaps, the device. The script draws what depends on the
// width of the window or on what was clicked: timeline, roofline, launches, the
// kernels of a stage.
//
// # Events
//
// Events travel as columns of bytes, in base64: see [columns]. A track of the
// timeline has one or more bands, in each of which events lie apart, so that the
// script finds what is visible by binary search and draws no more than about one
// rectangle per pixel and band.
package report
