package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpt2scope/internal/require"
)

var must = require.NoError

// terminal is a pseudo-terminal with infer on it.
type terminal struct {
	t      *testing.T
	keys   *os.File // the other side: what is typed goes in, what shows comes out
	infer  *exec.Cmd
	ended  chan error
	mu     sync.Mutex
	screen bytes.Buffer
	seen   int // of the screen, by expect
}

// onTerminal starts infer with a terminal of its own for all of its files.
func onTerminal(t *testing.T, args ...string) *terminal {
	t.Helper()
	keys := require.Value(os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0))(t)
	must(t, unix.IoctlSetPointerInt(int(keys.Fd()), unix.TIOCSPTLCK, 0))
	n := require.Value(unix.IoctlGetInt(int(keys.Fd()), unix.TIOCGPTN))(t)
	tty := require.Value(os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0))(t)
	defer tty.Close()
	term := &terminal{t: t, keys: keys, infer: exec.Command(os.Args[0], args...), ended: make(chan error, 1)}
	c := term.infer
	c.Env = append(os.Environ(), asInfer+"=1", "GOMAXPROCS=2", "TERM=xterm")
	c.Stdin, c.Stdout, c.Stderr = tty, tty, tty
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must(t, c.Start())
	t.Cleanup(func() { c.Process.Kill(); keys.Close() })
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := keys.Read(buf)
			term.mu.Lock()
			term.screen.Write(buf[:n])
			term.mu.Unlock()
			if err != nil { // the program ended
				term.ended <- c.Wait()
				return
			}
		}
	}()
	return term
}

func (term *terminal) shown() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.screen.String()
}

// expect waits until a text shows after what was expected before, and returns what shows
// in between.
func (term *terminal) expect(text string) string {
	term.t.Helper()
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(5 * time.Millisecond) {
		all := term.shown()[term.seen:]
		if i := strings.Index(all, text); i >= 0 {
			term.seen += i + len(text)
			return all[:i]
		}
	}
	term.t.Fatalf("%q does not show; the screen has %q", text, term.shown())
	return ""
}

// await waits until so many bytes show after what was expected before.
func (term *terminal) await(n int) {
	term.t.Helper()
	for began := time.Now(); len(term.shown())-term.seen < n; time.Sleep(time.Millisecond) {
		if time.Since(began) > time.Minute {
			term.t.Fatalf("the screen has only %q", term.shown())
		}
	}
}

func (term *terminal) keyIn(keys string) {
	term.t.Helper()
	if _, err := term.keys.WriteString(keys); err != nil {
		term.t.Fatal(err)
	}
}

// status waits for the end.
func (term *terminal) status() int {
	term.t.Helper()
	select {
	case <-term.ended:
		return term.infer.ProcessState.ExitCode()
	case <-time.After(time.Minute):
		term.t.Fatalf("it does not end; the screen has %q", term.shown())
		return 0
	}
}

// TestInteractive: Ctrl-C stops the text and not the program, which goes on from all that was written, beyond its context
// too; at the prompt it drops the line. The line typed before comes back by a key. Ctrl-D ends with status 0.
func TestInteractive(t *testing.T) {
	term := onTerminal(t, "-i", "-m", tiny, "-n", "-1", "--ignore-eos", "-s", "1")
	term.expect("an empty line lets it go on")
	term.expect("> ")
	term.keyIn("ROMEO:\r")
	term.expect("ROMEO:\r\n")
	term.await(500) // some contexts of 64 tokens
	term.keyIn("\x03")
	term.expect("\r\n> ")
	term.keyIn("dropped\x03")
	term.expect("^C\r\n> ")
	term.keyIn("\x1b[A\r") // the line before
	term.expect("ROMEO:")
	term.await(100)
	term.keyIn("\x03")
	term.expect("\r\n> ")
	term.keyIn("\x04")
	if status := term.status(); status != 0 || !strings.Contains(term.shown()[term.seen:], "decode") || strings.Contains(term.shown(), "interrupted") {
		t.Errorf("status %d, the screen has %q", status, term.shown())
	}
}

// TestInteractiveEnds: the terminal is as it was when SIGTERM ends the program at its prompt.
func TestInteractiveEnds(t *testing.T) {
	term := onTerminal(t, "-i", "-m", tiny)
	mode := func() uint32 {
		t.Helper()
		state := require.Value(unix.IoctlGetTermios(int(term.keys.Fd()), unix.TCGETS))(t)
		return state.Lflag & (unix.ICANON | unix.ECHO | unix.ISIG)
	}
	const before = unix.ICANON | unix.ECHO | unix.ISIG // of a new terminal; by now the program may have changed it
	term.expect("> ")
	for began := time.Now(); mode() == before; time.Sleep(time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatal("keys are not read one by one")
		}
	}
	// Held open, so that the state can be read after the program.
	hold := require.Value(os.OpenFile("/proc/"+fmt.Sprint(term.infer.Process.Pid)+"/fd/0", os.O_RDWR|syscall.O_NOCTTY, 0))(t)
	defer hold.Close()
	must(t, term.infer.Process.Signal(syscall.SIGTERM))
	for began := time.Now(); mode() != before; time.Sleep(time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatalf("the terminal is left in another mode: %x, before %x", mode(), before)
		}
	}
}

// TestInteractiveWithoutTerminal: lines of a pipe are texts too. What the model makes of each depends on all before it:
// the same as one run on the whole.
func TestInteractiveWithoutTerminal(t *testing.T) {
	args := []string{"-m", tiny, "-n", "5", "-s", "1", "--temp", "0", "--ignore-eos", "--quiet"}
	turn := func(prompt string) string { return mustInfer(t, append(args, "-p", prompt)...).stdout }
	first := turn("ROMEO:")
	second := turn("ROMEO:" + first + "And then")
	third := turn("ROMEO:" + first + "And then" + second)
	e := inferProcess(t, "ROMEO:\nAnd then\n\n", append(args, "-i")...)
	want := first + "\n" + second + "\n" + third + "\n"
	if e.status != 0 || e.stdout != want {
		t.Errorf("status %d, text %q, want %q; stderr %q", e.status, e.stdout, want, e.stderr)
	}
	if e := inferProcess(t, "", append(args, "-i", "-p", "ROMEO:")...); e.status != 0 || e.stdout != first+"\n" {
		t.Errorf("after a prompt by a flag: status %d, text %q, want %q; stderr %q", e.status, e.stdout, first, e.stderr)
	}
	long := strings.Repeat("x", 65)
	if e := inferProcess(t, long+"\nROMEO:\n", append(args, "-i")...); e.status != 0 || e.stdout != first+"\n" || !strings.Contains(e.stderr, "65 tokens") {
		t.Errorf("after a text that is too long: status %d, text %q, stderr %q", e.status, e.stdout, e.stderr)
	}
}

// inferProcess runs infer in a process of its own, with a text on standard input.
func inferProcess(t *testing.T, stdin string, args ...string) ended {
	t.Helper()
	c := exec.Command(os.Args[0], args...)
	c.Env = append(os.Environ(), asInfer+"=1", "GOMAXPROCS=2")
	c.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	c.Run()
	return ended{c.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}
