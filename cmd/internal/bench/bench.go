// SPDX-License-Identifier: Apache-2.0

// Package bench is the frame of `trunkline bench`: what all experiments share. An experiment is a package below this one
// and a line in the command's catalogue. Each compares with a named peer in the same run, interleaved, and gives medians
// and quartiles; the frame prints, writes files and plots, says how far a run is, and sees to it that a signal ends a run
// in order.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
)

// Bench is one experiment.
type Bench struct {
	Name     string // of the command, one word
	Short    string // what it finds out, in one line
	Long     string
	Example  string               // command lines
	NeedRoot bool                 // namespaces, cgroups, BPF
	Flags    func(*pflag.FlagSet) // adds the experiment's own flags; nil: it has none
	Check    func() error         // looks at them before anything is begun; nil: all are fine
	Run      func(context.Context, *Session) (*Report, error)
}

// Options are what every experiment is given on the command line.
type Options struct {
	Quick   bool   // less than a minute on an ordinary host, at the price of more spread
	JSON    bool   // one object instead of the table
	Out     string // directory for table, JSON and plots; empty: none are written
	Seed    uint64 // of everything drawn by chance, the order of runs among it
	Binary  string // the trunkline executable that agents and loads run; empty: this one
	Version string // trunkline's own
	Stdout  io.Writer
	Stderr  io.Writer // progress
}

// Session is what an experiment gets to run.
type Session struct {
	Options
	Progress *Progress
}

// Run runs an experiment and hands out what it found. Whatever way it ends, also by a signal, the experiment has removed
// what it made before Run returns.
func Run(ctx context.Context, b *Bench, o Options) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// Whoever reads the output may go away (bench | head): caught, that is a failed write and not the end of this process.
	gone := make(chan os.Signal, 1)
	signal.Notify(gone, syscall.SIGPIPE)
	defer signal.Stop(gone)
	if b.NeedRoot && os.Geteuid() != 0 {
		return fmt.Errorf("the bench needs root (network namespaces, BPF): sudo trunkline bench %s", b.Name)
	}
	if o.Binary == "" {
		exe, err := os.Executable()
		if err != nil {
			return fmt.Errorf("finding the trunkline executable: %w", err)
		}
		o.Binary = exe
	}
	// A directory that cannot be made is better known before minutes of measuring than after.
	if err := makeOut(o.Out); err != nil {
		return err
	}
	machine := describeMachine(b.Name, o)
	say := NewProgress(o.Stderr)
	report, err := b.Run(ctx, &Session{Options: o, Progress: say})
	say.Close()
	if err != nil && ctx.Err() != nil {
		return errors.New("interrupted") // whatever the signal made fail is no news
	}
	if err != nil {
		return err
	}
	report.Machine = machine
	return report.deliver(o)
}
