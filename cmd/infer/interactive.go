//go:build cgo

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/gpt2"
	"gpt2scope/internal/console"
)

// interact lets the model go on from each text that is typed, in one context, until the input ends. ids are what it
// begins with, if there are any.
func (g *generateFlags) interact(ctx context.Context, s *gpt2.Session, o *cli.Opened, ids []int32,
	stdin io.Reader) error {
	screen := g.stdout
	if !cli.IsTerminal(screen) {
		screen = g.Stderr
	}
	lines := console.NewLines(stdin, screen, "> ")
	signal.Reset(os.Interrupt) // Ctrl-C ends the program no longer
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)

	if lines.Terminal() {
		g.Notice("the model goes on from what you type: Ctrl-C stops it, Ctrl-D ends, an empty line lets it go on")
	}
	closing := result{Seed: g.sampling.Seed, Setting: o.Setting()}
	for {
		if len(ids) > 0 || s.Length() > 0 {
			if err := g.turn(ctx, s, o, ids, interrupts); err != nil {
				return err
			}
		}
		var err error
		if ids, err = g.typed(ctx, s, lines, interrupts); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
	}
	if s.Stats() == (gpt2.Stats{}) { // nothing was typed
		return nil
	}
	closing.measured(s)
	g.summary(closing)
	return nil
}

// turn evaluates ids after what the session holds, and writes what the model makes of it.
func (g *generateFlags) turn(ctx context.Context, s *gpt2.Session, o *cli.Opened, ids []int32,
	interrupts <-chan os.Signal) error {
	if err := o.Fits(len(ids)); err != nil {
		fmt.Fprintf(g.Stderr, "infer: %v\n", err)
		return nil
	}
	if err := s.MakeRoom(len(ids)); err != nil {
		return err
	}
	running, stop := interruptible(ctx, interrupts)
	defer stop()
	r, out, err := g.goOn(running, s, o, ids)
	if err != nil && (ctx.Err() != nil || !errors.As(err, new(cli.Interruption))) {
		return err
	}
	if n := len(out.shown); n > 0 && out.shown[n-1] != '\n' {
		if err := cli.WriteOutput(g.stdout, []byte("\n")); err != nil {
			return err
		}
	}
	if err == nil && !out.stopped() && r.made < g.most() {
		g.Notice("the model ended the text")
	}
	return nil
}

// typed returns the ids of the next text; none of them to let the model go on.
func (g *generateFlags) typed(ctx context.Context, s *gpt2.Session, lines *console.Lines,
	interrupts <-chan os.Signal) ([]int32, error) {
	for {
		waiting, stop := ctx, func() {}
		if !lines.Terminal() { // there Ctrl-C is a key, and a signal that came late was for the text
			waiting, stop = interruptible(ctx, interrupts)
		}
		line, err := lines.Next(waiting)
		stop()
		switch {
		case errors.Is(err, console.ErrInterrupted):
			continue
		case err != nil:
			return nil, err
		case line == "" && s.Length() > 0:
			return nil, nil
		}
		return s.Model().Encode(line)
	}
}

// interruptible returns a context that a signal cancels until stop is called. Signals that came before do not count.
func interruptible(ctx context.Context, signals <-chan os.Signal) (running context.Context, stop func()) {
	select {
	case <-signals:
	default:
	}
	running, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-signals:
			cancel(cli.Interruption{Signal: syscall.SIGINT})
		case <-running.Done():
		}
	}()
	return running, func() { cancel(nil) }
}
