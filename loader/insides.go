// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"slices"
	"sync"

	"github.com/trunkline/trunkline/cc"
	"github.com/trunkline/trunkline/cc/insides"
)

// insidesState reads what our congestion controls keep of flows. It is loaded when somebody first looks.
type insidesState struct {
	mu     sync.Mutex // guards what follows; one reading at a time
	reader *insides.Reader
	failed bool
}

// addInsides adds to flows under congestion controls of ours what those keep of them, and what the window is now. Flows are
// worth showing without, so what fails is logged, once.
func (l *Loader) addInsides(flows []Flow) {
	if !slices.ContainsFunc(flows, func(f Flow) bool { _, ours := cc.Lookup(f.Congestion); return ours }) {
		return
	}
	sockets, err := l.readInsides()
	if err != nil {
		l.log.Warn("flows are shown without what their congestion controls keep of them", "err", err)
		return
	}
	byCookie := make(map[uint64]insides.Socket, len(sockets))
	for _, s := range sockets {
		byCookie[s.Cookie] = s
	}
	for i := range flows {
		f := &flows[i]
		s, ok := byCookie[f.Cookie]
		if !ok || f.Cookie == 0 || s.Name != f.Congestion {
			continue
		}
		f.CwndPackets, f.SsthreshPackets = s.Cwnd, s.SSThresh
		if f.SsthreshPackets == noSsthresh {
			f.SsthreshPackets = 0
		}
		if f.Algorithm, err = cc.Values(s.Name, s.State); err != nil {
			l.log.Warn("reading what a congestion control keeps", "name", s.Name, "err", err)
		}
	}
}

// readInsides returns the sockets under congestion controls of ours, none if that has failed before.
func (l *Loader) readInsides() ([]insides.Socket, error) {
	l.insides.mu.Lock()
	defer l.insides.mu.Unlock()
	if l.insides.failed {
		return nil, nil
	}
	var err error
	if l.insides.reader == nil {
		if l.insides.reader, err = insides.Open(true); err == nil {
			l.onClose(l.closeInsides)
		}
	}
	var sockets []insides.Socket
	if err == nil {
		sockets, err = l.insides.reader.Read()
	}
	l.insides.failed = err != nil
	return sockets, err
}

func (l *Loader) closeInsides() error {
	l.insides.mu.Lock()
	defer l.insides.mu.Unlock()
	l.insides.failed = true
	return l.insides.reader.Close()
}
