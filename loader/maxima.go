// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/trunkline/trunkline/loader/ledger"
)

// The maxima of buffers. The first two bound what a program may set as a socket's buffers, for all of the host; the others
// how far the kernel tunes them, for the agent's network namespace.
const (
	rmemMax = "net.core.rmem_max"
	wmemMax = "net.core.wmem_max"
	tcpRmem = "net.ipv4.tcp_rmem"
	tcpWmem = "net.ipv4.tcp_wmem"
)

// bufferState is which maxima this instance has raised.
type bufferState struct {
	raised map[string]raisedMaximum
}

type raisedMaximum struct {
	id     uint64 // in the ledger
	old    uint64 // before, in bytes
	bytes  uint64 // as raised
	failed bool   // it could not be, and that was logged
}

// maximum returns what a sysctl of one word, or of three with the maximum last, says.
func maximum(name string) (words []string, most uint64, err error) {
	text, err := ledger.ReadSysctl(name)
	if err != nil {
		return nil, 0, err
	}
	words = strings.Fields(text)
	if len(words) == 0 {
		return nil, 0, fmt.Errorf("sysctl %s is empty", name)
	}
	most, err = strconv.ParseUint(words[len(words)-1], 10, 64)
	return words, most, err
}

// hold keeps a maximum at need bytes at least, 0: as it was. Each change is written down in the ledger first. One that is no
// longer needed as high is first put back.
func (l *Loader) hold(name string, need uint64) error {
	r, raised := l.rules.buffers.raised[name]
	switch {
	case raised && need == r.bytes:
		_, most, err := maximum(name)
		if err == nil && most < need && !r.failed { // someone has lowered it: theirs is the last word
			r.failed = true
			l.rules.buffers.raised[name] = r
			l.log.Warn("someone has lowered a maximum that the rules need", "sysctl", name, "value", most, "needed", need)
		}
		return nil
	case raised && need < r.bytes:
		if err := l.lower(name); err != nil {
			return err
		}
	}
	if need == 0 {
		return nil
	}
	words, most, err := maximum(name)
	if err != nil || most >= need {
		return err
	}
	if l.o.Ledger == nil {
		return errors.New("there is no ledger to write the change down in")
	}
	return l.raise(name, words, most, need)
}

func (l *Loader) raise(name string, words []string, old, need uint64) error {
	if r, raised := l.rules.buffers.raised[name]; raised { // higher: what is restored stays what was found first
		if err := l.lower(name); err != nil {
			return err
		}
		old = min(old, r.old)
	}
	words[len(words)-1] = strconv.FormatUint(need, 10)
	id, err := l.o.Ledger.SetSysctl(name, strings.Join(words, " "))
	if err != nil || id == 0 { // 0: somebody has raised it just now
		return err
	}
	if l.rules.buffers.raised == nil {
		l.rules.buffers.raised = map[string]raisedMaximum{}
		l.onClose(func() error {
			l.applyMu.Lock()
			defer l.applyMu.Unlock()
			return l.lower(keys(l.rules.buffers.raised)...)
		})
	}
	l.rules.buffers.raised[name] = raisedMaximum{id: id, old: old, bytes: need}
	l.log.Info("raised a maximum of buffers", "sysctl", name, "old", old, "new", need)
	return nil
}

// lower undoes what raise did, unless someone else has changed the value since.
func (l *Loader) lower(names ...string) error {
	var errs []error
	for _, name := range names {
		r, raised := l.rules.buffers.raised[name]
		if !raised {
			continue
		}
		_, err := l.o.Ledger.UndoOnly(l.log, r.id)
		if err == nil {
			delete(l.rules.buffers.raised, name)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
