// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/trunkline/trunkline/loader/policy"
)

// fakeClock goes when it is told to. Its wall clock can be set without time passing.
type fakeClock struct {
	mu   sync.Mutex
	wall time.Time
	boot time.Duration
	id   string
}

func newClock() *fakeClock {
	return &fakeClock{wall: time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC), boot: time.Hour, id: "boot-1"}
}

func (c *fakeClock) Wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wall
}

func (c *fakeClock) Boot() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.boot
}

func (c *fakeClock) BootID() string { return c.id }

// pass lets time go by.
func (c *fakeClock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall, c.boot = c.wall.Add(d), c.boot+d
}

// set moves the wall clock alone.
func (c *fakeClock) set(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall = c.wall.Add(by)
}

// memoryStore keeps what it is given, unless it is told to fail.
type memoryStore struct {
	records map[string][]byte
	fail    error
	saves   int
}

func (s *memoryStore) Save(r map[string][]byte) error {
	if s.fail != nil {
		return s.fail
	}
	s.records = maps.Clone(r)
	s.saves++
	return nil
}

var errDisk = errors.New("no space left on device")

// recorder is a kernel that takes down what it is told.
type recorder struct {
	mu          sync.Mutex
	inForce     []policy.Reserved
	calls       int
	fail        error
	connections []Connection
	use         []Use
}

func (k *recorder) Reserve(set []policy.Reserved) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.calls++
	if k.fail == nil {
		k.inForce = set
	}
	return k.fail
}

func (k *recorder) Connections() ([]Connection, error) { return k.connections, nil }
func (k *recorder) Use() []Use                         { return k.use }

func (k *recorder) ids() string {
	ids := ""
	for _, r := range k.inForce {
		ids += r.ID + " "
	}
	return ids
}

// fakeProber answers what it is told, per target.
type fakeProber map[netip.AddrPort]time.Duration

func (p fakeProber) Probe(_ context.Context, a netip.AddrPort) (time.Duration, error) {
	if p[a] == 0 {
		return 0, errors.New("timed out")
	}
	return p[a], nil
}

var root = Caller{Name: "root", Root: true}

func newBook(t *testing.T, c Clock, s *memoryStore, p Policy) *Book {
	t.Helper()
	b, err := NewBook(c, s, p, s.records)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mustAdd(t *testing.T, b *Book, q Request, by Caller) Reservation {
	t.Helper()
	r, err := b.Add(q, by)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// plain is a request that nothing is wrong with, of a path whose round-trip time is known.
func plain(remote string) Request {
	return Request{Remote: []string{remote}, Rate: "1Gbit", For: "2h", RTT: "135ms"}
}
