//go:build unix

package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// process is infer in a process of its own: this test binary, as TestMain runs it.
type process struct {
	*exec.Cmd
	stdout io.ReadCloser
	stderr bytes.Buffer
}

func start(t *testing.T, args ...string) *process {
	t.Helper()
	return startWith(t, nil, args...)
}

func startWith(t *testing.T, stdin *os.File, args ...string) *process {
	t.Helper()
	if signal.Ignored(syscall.SIGHUP) { // by nohup; then it would be in the process, too
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	p := &process{Cmd: exec.Command(os.Args[0], args...)}
	p.Env = append(os.Environ(), asInfer+"=1", "GOMAXPROCS=2")
	p.Stderr = &p.stderr
	if stdin != nil {
		p.Stdin = stdin
	}
	var err error
	if p.stdout, err = p.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	must(t, p.Start())
	t.Cleanup(func() { p.Process.Kill() })
	return p
}

// TestBothStreamsInOneFile checks that the closing line begins a line of its own after 2>&1.
func TestBothStreamsInOneFile(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "both"))
	must(t, err)
	defer f.Close()
	c := exec.Command(os.Args[0], "-n", "8", "-s", "2", "--device", "cpu", "-m", tiny, "--ids", "1,2")
	c.Env = append(os.Environ(), asInfer+"=1")
	c.Stdout, c.Stderr = f, f
	must(t, c.Run())
	both, err := os.ReadFile(f.Name())
	if err != nil || !bytes.Contains(both, []byte("\ncpu (")) {
		t.Errorf("error %v; both streams have %q", err, both)
	}
}

// prompt is how soon a process must end that was told to.
const prompt = time.Minute

// interrupt sends a signal, as Ctrl-C does, and returns the rest of standard
// output when the process has ended, which must be at once.
func (p *process) interrupt(t *testing.T, signal os.Signal) string {
	t.Helper()
	must(t, p.Process.Signal(signal))
	since := time.Now()
	rest, _ := io.ReadAll(p.stdout)
	p.Wait()
	if took := time.Since(since); took > prompt {
		t.Errorf("it took %v to end", took)
	}
	return string(rest)
}

// longGeneration never ends by itself.
var longGeneration = []string{"-m", tiny, "-n", "1000000000", "--ignore-eos", "-s", "1"}

// TestInterruptGeneration also shows that text comes as it is made: the first of
// it is read before the end, which never comes.
func TestInterruptGeneration(t *testing.T) {
	for s, status := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143, syscall.SIGHUP: 129} {
		if signal.Ignored(s) {
			continue // under nohup
		}
		p := start(t, longGeneration...)
		first := make([]byte, 100)
		if _, err := io.ReadFull(p.stdout, first); err != nil {
			t.Fatal(err)
		}
		p.interrupt(t, s)
		if code := p.ProcessState.ExitCode(); code != status {
			t.Errorf("%v: status %d", s, code)
		}
		lines := strings.Split(strings.TrimSuffix(p.stderr.String(), "\n"), "\n")
		if last := lines[len(lines)-1]; len(lines) != 2 || !strings.HasPrefix(last, "cpu (") || !strings.Contains(last, "seed 1 |") || !strings.HasSuffix(last, "| interrupted") {
			t.Errorf("%v: stderr has %q", s, p.stderr.String())
		}
	}
}

// A signal that comes twice at once, as from timeout(1), leaves time for the end; a later one does not.
func TestSecondSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals := make(chan os.Signal)
		var told []syscall.Signal
		var ended atomic.Bool
		go func() {
			if s := waitForSecond(signals, func(s syscall.Signal) { told = append(told, s) }); s != syscall.SIGTERM {
				t.Errorf("it returned %v", s)
			}
			ended.Store(true)
		}()
		signals <- syscall.SIGTERM
		signals <- syscall.SIGTERM
		synctest.Wait()
		if ended.Load() || !slices.Equal(told, []syscall.Signal{syscall.SIGTERM}) {
			t.Fatalf("after one signal sent twice: told of %v, ended %v", told, ended.Load())
		}
		time.Sleep(time.Second)
		signals <- syscall.SIGINT
		synctest.Wait()
		if !ended.Load() || len(told) != 1 {
			t.Fatalf("after a second signal: told of %v, ended %v", told, ended.Load())
		}
	})
}

func TestInterruptJSON(t *testing.T) {
	var p *process
	out := "" // where the signal comes before the text is begun, as on a busy machine, there is none
	for wait := 300 * time.Millisecond; out == "" && wait < time.Minute; wait *= 2 {
		p = start(t, append(longGeneration, "--json")...)
		time.Sleep(wait)
		out = p.interrupt(t, os.Interrupt)
	}
	r := parse(t, out)
	if code := p.ProcessState.ExitCode(); code != 130 || r.Finish != "interrupted" || r.Text == nil || p.stderr.Len() > 0 {
		t.Errorf("status %d, finish %s, %d ids, stderr %q", code, r.Finish, len(r.IDs), p.stderr.String())
	}
}

// TestPipedPrompt: text on standard input is the prompt if no flag gives one. No text, and a pipe that nobody writes to or
// closes, are no prompt.
func TestPipedPrompt(t *testing.T) {
	args := []string{"-m", tiny, "-n", "20", "-s", "1", "--temp", "0", "--ignore-eos"}
	with := mustInfer(t, append(args, "-p", "ROMEO:")...).stdout
	without := mustInfer(t, append(args, "-p", "")...).stdout
	if with == without {
		t.Fatal("the prompt makes no difference")
	}
	for _, c := range []struct {
		name        string
		write       bool // to the pipe, which then ends
		more        []string
		want, words string // words of a notice
	}{
		{"a pipe", true, nil, with, ""},
		{"a silent pipe", false, nil, without, "sent nothing for 1 s"},
		{"a silent pipe and a prompt", false, []string{"-p", "ROMEO:"}, with, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, w, err := os.Pipe()
			must(t, err)
			defer r.Close()
			defer w.Close()
			if c.write {
				w.WriteString("ROMEO:")
				w.Close()
			}
			p := startWith(t, r, append(args, c.more...)...)
			watchdog := time.AfterFunc(2*time.Minute, func() { p.Process.Kill() })
			defer watchdog.Stop()
			text, _ := io.ReadAll(p.stdout)
			if err := p.Wait(); err != nil || string(text) != c.want {
				t.Errorf("%v: %q, want %q; stderr %q", err, text, c.want, p.stderr.String())
			}
			if notice := p.stderr.String(); strings.Contains(notice, "sent nothing") != (c.words != "") || !strings.Contains(notice, c.words) {
				t.Errorf("stderr has %q, want the notice %q", notice, c.words)
			}
		})
	}
	if e := inferWith(t, t.Context(), "hi", "tokenize", "-m", tiny); !strings.Contains(e.stdout, `"h"`) || !strings.Contains(e.stdout, `"i"`) {
		t.Errorf("tokenize shows %q of what is piped", e.stdout)
	}
}

// deep is a model with little to load, and so much attention in a prefill of 8000
// tokens that it takes a thread seconds.
const deep = "random:L=48,C=64,NH=1,V=257,T=16384"

// TestInterrupt interrupts what takes long but text generation.
func TestInterrupt(t *testing.T) {
	dir := t.TempDir()
	ids, text, old := filepath.Join(dir, "ids"), filepath.Join(dir, "text"), filepath.Join(dir, "old")
	mustInfer(t, "export", "-m", tiny, "--out", old)
	before := contents(t, old)
	writeFile(t, ids, strings.Repeat("1 ", 8000))
	writeFile(t, text, strings.Repeat("To be, or not to be ", 4000))
	fifo := filepath.Join(dir, "fifo")
	must(t, syscall.Mkfifo(fifo, 0o666))
	stdin, pipe, err := os.Pipe()
	must(t, err)
	defer stdin.Close()
	defer pipe.Close() // nothing ever comes through it
	t.Run("beside one another", func(t *testing.T) {
		for _, c := range []struct {
			name  string
			stdin *os.File
			args  []string
		}{
			{"a prefill", nil, []string{"-m", deep, "-t", "1", "--ids", "@" + ids}},
			{"loading", nil, []string{"-m", "random:gpt2-xl"}},
			{"waiting for a prompt", stdin, []string{"-m", tiny, "-f", "-"}},
			{"a FIFO that nobody writes", nil, []string{"eval", "-m", tiny, "--text", fifo}},
			{"samples that nobody writes", nil, []string{"tasks", "fit", fifo}},
			{"a cost model that nobody writes", nil, []string{"tasks", "simulate", "--model-file", fifo}},
			{"a long stream of tasks", nil, []string{"tasks", "simulate", "--count", "1000000"}},
			{"eval", nil, []string{"eval", "-m", tiny, "--text", text, "--stride", "1", "--device", "reference"}},
			{"dump", nil, []string{"dump", "-m", deep, "-t", "1", "--ids", "@" + ids, "--stage", "ln_f", "--out", filepath.Join(dir, "made", "x.npy")}},
			{"export over a model", nil, []string{"export", "-m", "random:gpt2-xl", "--force", "--out", old}},
		} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				p := startWith(t, c.stdin, c.args...)
				time.Sleep(500 * time.Millisecond) // it ends in the same way wherever it is by then
				out := p.interrupt(t, os.Interrupt)
				if stderr := p.stderr.String(); p.ProcessState.ExitCode() != 130 || !strings.Contains(stderr, "interrupted") || out != "" {
					t.Errorf("status %d, stdout %q, stderr %q", p.ProcessState.ExitCode(), out, stderr)
				}
			})
		}
	})
	if left, err := os.ReadDir(dir); err != nil || len(left) != 4 { // ids, text, old, fifo
		t.Errorf("%v, %v is left", err, left)
	}
	if after := contents(t, old); !maps.Equal(before, after) {
		t.Errorf("the model that was there has %d files, which are not its %d", len(after), len(before))
	}
}

// TestHangup: what a recording or an export has written by then is kept as a whole or removed; after nohup, nothing ends.
func TestHangup(t *testing.T) {
	dir := t.TempDir()
	trace := filepath.Join(dir, "trace.json.gz")
	p := start(t, append(longGeneration, "--trace", trace, "--no-baseline", "--device", "cpu")...)
	if _, err := io.ReadFull(p.stdout, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	p.interrupt(t, syscall.SIGHUP)
	if info, err := os.Stat(trace); err != nil || info.Size() == 0 || p.ProcessState.ExitCode() != 129 {
		t.Errorf("status %d, the recording: %v; stderr %q", p.ProcessState.ExitCode(), err, p.stderr.String())
	}
	out := filepath.Join(dir, "model")
	p = start(t, "export", "-m", "random:gpt2-xl", "-o", out, "--quiet")
	for i, staging := 0, []string(nil); i < 600 && len(staging) == 0; i++ { // until it writes
		time.Sleep(10 * time.Millisecond)
		staging, _ = filepath.Glob(filepath.Join(dir, ".model.tmp-*"))
	}
	p.interrupt(t, syscall.SIGHUP)
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 || p.ProcessState.ExitCode() != 129 {
		t.Errorf("status %d, %v is left, %v", p.ProcessState.ExitCode(), left, err)
	}
	c := exec.Command("sh", "-c", `trap "" HUP; exec "$0" "$@"`, os.Args[0], "-m", tiny, "-n", "20000", "--ignore-eos", "--quiet")
	c.Env = append(os.Environ(), asInfer+"=1")
	stdout, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	must(t, err)
	if _, err := io.ReadFull(stdout, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	c.Process.Signal(syscall.SIGHUP)
	io.Copy(io.Discard, stdout)
	if err := c.Wait(); err != nil {
		t.Errorf("after nohup a hangup ends it: %v", err)
	}
}

// TestOutputNotThere: a closed standard output is an error where something is written to it, and nowhere else.
func TestOutputNotThere(t *testing.T) {
	npy := filepath.Join(t.TempDir(), "x.npy")
	for _, c := range []struct {
		status int
		args   []string
	}{
		{1, []string{"-m", tiny, "-n", "3", "-s", "1", "--quiet"}}, // of some seeds the text is empty
		{1, []string{"-m", tiny, "-n", "3", "--json"}},
		{1, []string{"tokenize", "-m", tiny, "-p", "x"}},
		{1, []string{"dump", "-m", tiny, "-p", "x", "--stage", "ln_f", "-o", "-", "--quiet"}},
		{0, []string{"dump", "-m", tiny, "-p", "x", "--stage", "ln_f", "-o", npy, "--quiet"}},
	} {
		c2 := exec.Command("sh", append([]string{"-c", `exec "$0" "$@" >&-`, os.Args[0]}, c.args...)...)
		c2.Env = append(os.Environ(), asInfer+"=1")
		var stderr bytes.Buffer
		c2.Stderr = &stderr
		c2.Run()
		if c2.ProcessState.ExitCode() != c.status {
			t.Errorf("%q: status %d, %q", c.args, c2.ProcessState.ExitCode(), stderr.String())
		}
		if c.status != 0 {
			checkOneLine(t, stderr.String(), "standard output", "closed")
		}
	}
	if _, _, x := readNPY(t, npy); len(x) != 64 {
		t.Errorf("the file has %d values", len(x))
	}
}

// TestClosedOutput reads a little of what would be much, and closes the pipe, as
// "infer ... | head -1" does: the program says nothing.
func TestClosedOutput(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	writeFile(t, text, strings.Repeat("To be, or not to be\n", 5000))
	const layered = "random:L=400,C=8,NH=1,V=257,T=16"
	for name, args := range map[string][]string{
		"text":          longGeneration,
		"json":          {"-m", tiny, "-n", "10000", "--ignore-eos", "--json"},
		"info":          {"info", "-m", layered, "--fused=false", "--json"},
		"tokenize":      {"tokenize", "-m", tiny, "-f", text},
		"tokenize json": {"tokenize", "-m", tiny, "-f", text, "--json"},
		"dump":          {"dump", "-m", "random:L=1,C=1024,NH=16,V=257,T=256", "-f", text + ".short", "--stage", "h.0.mlp.gelu", "--quiet", "--out", "/dev/stdout"},
	} {
		if name == "dump" {
			writeFile(t, text+".short", strings.Repeat("x", 200))
		}
		t.Run(name, func(t *testing.T) {
			p := start(t, args...)
			if _, err := bufio.NewReaderSize(p.stdout, 16).ReadByte(); err != nil {
				t.Fatal(err)
			}
			p.stdout.Close()
			err := p.Wait()
			var exit *exec.ExitError
			if !errors.As(err, &exit) {
				t.Fatalf("it ended with %v", err)
			}
			status := exit.Sys().(syscall.WaitStatus)
			if killed := status.Signaled() && status.Signal() == syscall.SIGPIPE; !killed && status.ExitStatus() != 141 {
				t.Errorf("it ended with %v", err)
			}
			if p.stderr.Len() > 0 {
				t.Errorf("stderr has %q", p.stderr.String())
			}
		})
	}
}
