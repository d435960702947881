// Package plot draws what an experiment over layers found: plots as PNG and SVG, and
// one HTML page with all of it.
//
// # From result to picture
//
// [figures] makes of a [layers.Result] what is drawn: figures of panels of series of
// points, in the units of the result. It is the only place that chooses data, so that
// a test of it is a test of every picture. Drawing is that of gonum.org/v1/plot.
//
// Values that are no numbers are left out, and so is a series, a panel or a figure
// that has nothing left.
//
// # Reading the pictures
//
// Axes of depth, time, memory and energy begin at 0, so that the share of what is not
// the layers can be seen where the line meets the axis. A series differs from others
// by the shape of its marks and the dashes of its line, and not by colour alone.
// Marks of what was predicted are open.
//
// # The page
//
// It is one file without references to others, and has no script. Its policy
// (default-src 'none', and the hash of its own style) has the browser refuse all else;
// the style attributes that SVG commonly has are presentation attributes here, since
// the policy refuses the former. Each panel is there twice, for wide and for narrow
// windows, with letters of the same size.
package plot
