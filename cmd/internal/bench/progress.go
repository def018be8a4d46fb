// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Between two lines where they cannot be rewritten in place.
const logEvery = 2 * time.Second

// Progress tells a person, on standard error, how far a run is.
type Progress struct {
	mu       sync.Mutex
	w        io.Writer
	terminal bool
	live     bool // a line stands that is to be rewritten
	start    time.Time
	last     time.Time
}

// NewProgress begins to tell on w.
func NewProgress(w io.Writer) *Progress {
	p := &Progress{w: w, start: time.Now()}
	p.last = p.start
	if f, ok := w.(*os.File); ok {
		_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
		p.terminal = err == nil
	}
	return p
}

// Step says that so many of all parts are done and what begins now. A run that takes no time to speak of stays silent.
func (p *Progress) Step(done, all int, format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if !p.terminal && now.Sub(p.last) < logEvery {
		return
	}
	p.last = now
	line := fmt.Sprintf("%3d %%  %4.0f s  %s", 100*done/max(all, 1), now.Sub(p.start).Seconds(), fmt.Sprintf(format, args...))
	if !p.terminal {
		fmt.Fprintln(p.w, line)
		return
	}
	p.live = true
	fmt.Fprint(p.w, "\r\x1b[K"+line)
}

// Notef says what the person should know.
func (p *Progress) Notef(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	fmt.Fprintf(p.w, "note: "+format+"\n", args...)
}

// Close takes away what is rewritten. It may be called more than once.
func (p *Progress) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
}

// clear takes away the line that is rewritten.
func (p *Progress) clear() {
	if p.live {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
	p.live = false
}
