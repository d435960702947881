// Package layers measures what each transformer layer costs in time, memory and energy,
// and what it buys in quality.
package layers
