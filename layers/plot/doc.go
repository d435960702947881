// Package plot draws the result of an experiment over layers: plots as PNG and SVG, and one
// HTML page with plots and tables.
//
// # From result to picture
//
// [figures] turns a [layers.Result] into figures of panels of series of points, in the units
// of the result. It is the only place that chooses data, so that a test of it is a test of
// every picture. gonum.org/v1/plot draws them.
//
// Values that are not numbers are omitted, and so is a series, a panel or a figure without
// any value.
//
// # Reading the pictures
//
// Axes of depth, time, memory and energy begin at 0, so that the time outside the layers
// is the line's value at the axis. Series differ by the shape of their marks and the
// dashes of their line, not by colour alone. Marks of predictions are open.
//
// # The page
//
// It is one file without references to others, and has no script. Its policy
// (default-src 'none', and the hash of its own style) makes the browser refuse everything
// else; since that includes the style attributes that SVG commonly has, they are written as
// presentation attributes. Each panel is in the page twice, for wide and for narrow windows,
// with letters of the same size.
package plot
