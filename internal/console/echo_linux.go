package console

import "golang.org/x/sys/unix"

// Silence keeps the terminal from showing what is typed, which the next line then begins with, until restore is called.
// Other input it leaves as it is.
func (l *Lines) Silence() (restore func()) {
	if l.tty == nil {
		return func() {}
	}
	fd := int(l.tty.Fd())
	before, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil || before.Lflag&unix.ECHO == 0 {
		return func() {}
	}
	silent := *before
	silent.Lflag &^= unix.ECHO
	if unix.IoctlSetTermios(fd, unix.TCSETS, &silent) != nil {
		return func() {}
	}
	return func() { _ = unix.IoctlSetTermios(fd, unix.TCSETS, before) }
}
