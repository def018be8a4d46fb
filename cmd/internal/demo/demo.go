// SPDX-License-Identifier: Apache-2.0

// Package demo shows on one machine what trunkline does between two: two sites joined by an emulated WAN, an agent at
// each, a web server at one, and at the other a client that knows nothing of it. The client fetches a file directly, then
// through trunkline for the first time and again, and the demo says what each fetch cost.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/trunkline/trunkline/vmtest/lab"
)

// Options are what the person asked for.
type Options struct {
	Rate     uint64        // of the WAN, bits per second in each direction; 0: no limit
	RTT      time.Duration // of the empty WAN
	Loss     float64       // probability, 0 to 1, in each direction
	Seed     uint64        // of the losses
	File     string        // what is fetched; empty: the trunkline executable or another real file
	JSON     bool          // one object instead of the table
	Hold     bool          // keep the sites for a look around until the context ends
	KeepLogs bool          // leave the agents' and the server's logs behind, and say where
	Binary   string        // the trunkline executable that the agents run; empty: this one
	Stdout   io.Writer     // the table or the object
	Stderr   io.Writer     // progress
}

// The services at site B: the same file on two ports, of which one rule covers each.
const (
	directPort = 8080
	dedupPort  = 80
	peerPort   = 4820
)

// Sizes in bytes of the file that is chosen by default: never below minFile; with less than goodFile the figures are made
// of round trips more than of bytes, and of tooLarge and more it takes too long.
const (
	minFile  = 10e6
	goodFile = 16e6
	tooLarge = 48e6
)

// Run does it all. Whatever way it ends, also by a signal, it leaves no process, namespace, cgroup or file behind.
func Run(ctx context.Context, o Options) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// Whoever reads the output may go away (demo | head): caught, that is a failed write and not the end of this process.
	gone := make(chan os.Signal, 1)
	signal.Notify(gone, syscall.SIGPIPE)
	defer signal.Stop(gone)
	if os.Geteuid() != 0 {
		return errors.New("the demo needs root (network namespaces, BPF): sudo trunkline demo")
	}
	if o.Binary == "" {
		exe, err := os.Executable()
		if err != nil {
			return fmt.Errorf("finding the trunkline executable: %w", err)
		}
		o.Binary = exe
	}
	say := newProgress(o.Stderr)
	defer say.close()
	f, err := chooseFile(o.File, o.Binary)
	if err != nil {
		return err
	}
	if f.size < goodFile {
		say.notef("%s has only %.1f MB; with less than %d MB there is less to see", f.path, float64(f.size)/1e6, int(goodFile/1e6))
	}

	w := &world{opts: o, file: f, say: say}
	err = w.run(ctx)
	if err != nil && ctx.Err() != nil {
		err = errors.New("interrupted") // whatever the signal made fail is no news
	}
	return errors.Join(err, w.close())
}

// labOptions is the WAN that the person asked for.
func (o Options) labOptions() lab.Options {
	return lab.Options{Rate: o.Rate, RTT: o.RTT, Loss: o.Loss, Seed: o.Seed, NoIPv6: true, DSCP: markDSCP}
}
