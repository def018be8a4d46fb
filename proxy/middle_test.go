// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// middle stands between two agents and does to their connections what networks and crashes do.
type middle struct {
	l      net.Listener
	target string
	hole   atomic.Bool  // bytes are swallowed, connections stay
	stall  atomic.Bool  // nothing is taken for the target any more
	passed atomic.Int64 // bytes from the target
	limit  atomic.Int64 // cut all when passed exceeds it; 0: no limit

	mu    sync.Mutex
	conns map[*net.TCPConn]bool
	wg    sync.WaitGroup
}

func newMiddle(t testing.TB, target string) *middle {
	l, err := net.Listen("tcp", farAddr+":0")
	if err != nil {
		t.Fatal(err)
	}
	m := &middle{l: l, target: target, conns: map[*net.TCPConn]bool{}}
	t.Cleanup(func() {
		l.Close()
		m.stall.Store(false)
		m.cut(true)
		m.wg.Wait()
	})
	m.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			m.wg.Go(func() { m.join(c.(*net.TCPConn)) })
		}
	})
	return m
}

func (m *middle) join(a *net.TCPConn) {
	c, err := net.Dial("tcp", m.target)
	if err != nil {
		a.Close()
		return
	}
	b := c.(*net.TCPConn)
	m.mu.Lock()
	m.conns[a], m.conns[b] = true, true
	m.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { m.copy(b, a, nil) })
	both.Go(func() { m.copy(a, b, &m.passed) })
	both.Wait()
	m.mu.Lock()
	delete(m.conns, a)
	delete(m.conns, b)
	m.mu.Unlock()
	a.Close()
	b.Close()
}

func (m *middle) copy(dst, src *net.TCPConn, count *atomic.Int64) {
	buf := make([]byte, 16<<10)
	for {
		for count == nil && m.stall.Load() {
			time.Sleep(5 * time.Millisecond)
		}
		n, err := src.Read(buf)
		for m.hole.Load() && err == nil {
			n, err = src.Read(buf)
		}
		if count != nil && m.limit.Load() > 0 && count.Add(int64(n)) > m.limit.Load() {
			m.cut(false)
			return
		}
		if _, werr := dst.Write(buf[:n]); werr != nil {
			return
		}
		if err == io.EOF {
			dst.CloseWrite()
			return
		}
		if err != nil {
			dst.SetLinger(0)
			dst.Close()
			return
		}
	}
}

// cut ends all connections, by a reset or by what looks like a clean end.
func (m *middle) cut(reset bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for c := range m.conns {
		if reset {
			c.SetLinger(0)
		}
		c.Close()
	}
}

// newMiddleWorld is a world with a middle between the agents.
func newMiddleWorld(t testing.TB, change func(near, far *Config)) (*world, *middle) {
	var m *middle
	w := &world{t: t}
	nearID, farID := newTestIdentity(t), newTestIdentity(t)
	farCfg := Config{Identity: farID, Listen: farAddr + ":0", Peers: []Peer{{ID: 1, Name: "near", Key: nearID.Fingerprint(), Allow: []Allow{
		{Prefix: mustPrefix(serverAddr + "/32")}}}}}
	nearCfg := Config{Identity: nearID, Rules: []Rule{{ID: 7, Name: "rule", PeerID: 1}}, Peers: []Peer{{ID: 1, Name: "far", Key: farID.Fingerprint()}}}
	if change != nil {
		change(&nearCfg, &farCfg)
	}
	w.far = newAgent(t, "far", farCfg)
	_, _, port := w.far.Ports()
	m = newMiddle(t, fmt.Sprintf("%s:%d", farAddr, port))
	nearCfg.Peers[0].Address = m.l.Addr().String()
	w.near = newAgent(t, "near", nearCfg)
	w.far.run()
	w.near.run()
	w.waitUp()
	waitFor(t, "warm legs", 20*time.Second, func() bool { return w.near.Peers()[0].LegsWarm > 0 })
	return w, m
}
