//go:build !linux

package console

// Silence does nothing here.
func (l *Lines) Silence() (restore func()) { return func() {} }
