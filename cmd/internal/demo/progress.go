// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// How often a line tells how far a fetch is.
const (
	terminalEvery = 200 * time.Millisecond // rewritten in place
	logEvery      = 2 * time.Second        // a line of its own
)

// progress tells a person what goes on.
type progress struct {
	w        io.Writer
	terminal bool
	every    time.Duration
	live     bool // a line stands that is to be rewritten
	last     time.Time
}

func newProgress(w io.Writer) *progress {
	p := &progress{w: w, every: logEvery}
	if f, ok := w.(*os.File); ok {
		if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err == nil {
			p.terminal, p.every = true, terminalEvery
		}
	}
	return p
}

// stepf says what begins.
func (p *progress) stepf(format string, args ...any) {
	p.close()
	fmt.Fprintf(p.w, format+"\n", args...)
}

// notef says what the person should know.
func (p *progress) notef(format string, args ...any) { p.stepf("note: "+format, args...) }

// fetching says how far a fetch is, if it is time to.
func (p *progress) fetching(name string, done, total int64, since time.Duration) {
	if time.Since(p.last) < p.every {
		return
	}
	p.last = time.Now()
	line := fmt.Sprintf("  %-6s %3d %%  %6.1f s  %7.2f Mbit/s", name, 100*done/max(total, 1), since.Seconds(),
		float64(done)*8/1e6/max(since.Seconds(), 1e-3))
	if !p.terminal {
		fmt.Fprintln(p.w, line)
		return
	}
	p.live = true
	fmt.Fprint(p.w, "\r\x1b[K"+line)
}

// close takes away the line that is rewritten.
func (p *progress) close() {
	if p.live {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
	p.live = false
}
