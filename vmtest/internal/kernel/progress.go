// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"io"
	"time"
)

// tick is the time between two lines of progress of one step.
const tick = 5 * time.Second

// log tells what is done for one kernel.
type log struct {
	out  io.Writer
	name string
}

func newLog(out io.Writer, name string) log {
	if out == nil {
		out = io.Discard
	}
	return log{out, name}
}

func (l log) say(format string, args ...any) {
	fmt.Fprintf(l.out, "%s: %s\n", l.name, fmt.Sprintf(format, args...))
}

// step runs do and tells every few seconds how long it has been at it; how far it is, if far is not nil.
func (l log) step(what string, far func() string, do func() error) error {
	start := time.Now()
	ended := make(chan error, 1)
	go func() { ended <- do() }()
	l.say("%s", what)
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-ticker.C:
			detail := ""
			if far != nil {
				detail = far() + ", "
			}
			l.say("%s: %s%.0f s", what, detail, time.Since(start).Seconds())
		}
	}
}
