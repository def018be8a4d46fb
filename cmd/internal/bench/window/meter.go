// SPDX-License-Identifier: Apache-2.0

package window

import (
	"sync"
	"time"

	"github.com/trunkline/trunkline/cmd/internal/bench/child"
)

// meterEvery is how often a process adds up what its sockets hold.
const meterEvery = 5 * time.Millisecond

// held is what the sockets of a process held at most, by binTime of the clock that all processes share.
type held struct {
	First int64    `json:"first"` // number of the first bin since that clock began
	Peaks []uint64 `json:"peaks"` // bytes
}

// meter adds up what sockets hold in the kernel.
type meter struct {
	mu   sync.Mutex // guards what follows; nobody closes a socket that is being read
	fds  map[int]bool
	held held

	stop  chan struct{}
	ended chan struct{}
}

func newMeter() *meter {
	m := &meter{fds: map[int]bool{}, stop: make(chan struct{}), ended: make(chan struct{})}
	go m.run()
	return m
}

func (m *meter) add(fd int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fds[fd] = true
}

// remove must come before the socket is closed.
func (m *meter) remove(fd int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.fds, fd)
}

func (m *meter) run() {
	defer close(m.ended)
	t := time.NewTicker(meterEvery)
	defer t.Stop()
	for {
		select {
		case <-m.stop:
			return
		case <-t.C:
			m.look(child.Monotonic() / int64(binTime))
		}
	}
}

func (m *meter) look(bin int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.fds) == 0 {
		return
	}
	total := uint64(0)
	for fd := range m.fds {
		n, err := child.BufferBytes(fd)
		if err == nil { // a socket that was reset holds nothing
			total += n
		}
	}
	if len(m.held.Peaks) == 0 {
		m.held.First = bin
	}
	for m.held.First+int64(len(m.held.Peaks)) <= bin {
		m.held.Peaks = append(m.held.Peaks, 0)
	}
	p := &m.held.Peaks[bin-m.held.First]
	*p = max(*p, total)
}

// end stops looking, and gives what was seen.
func (m *meter) end() held {
	close(m.stop)
	<-m.ended
	return m.held
}
