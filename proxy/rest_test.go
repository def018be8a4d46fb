// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// restingEncoder and restingDecoder count what the engine asks of a codec.
type restingEncoder struct {
	codec.Encoder
	rests int
}

func (e *restingEncoder) Rest() { e.rests++ }

type restingDecoder struct {
	codec.Decoder
	rests int
}

func (d *restingDecoder) Rest() { d.rests++ }

// A flow rests once for each time that it falls idle, and never after its codec is closed.
func TestRestOnce(t *testing.T) {
	enc, dec := &restingEncoder{}, &restingDecoder{}
	f := &flow{enc: enc, dec: dec}
	at := time.Unix(1000, 0).UnixNano()
	f.active.Store(at)
	for range 3 {
		f.rest(at - 1)
	}
	if enc.rests+dec.rests != 0 {
		t.Error("a busy flow rests")
	}
	for range 3 {
		f.rest(at)
	}
	f.active.Store(at + 1)
	for range 3 {
		f.rest(at + 1)
	}
	f.dropped = true
	f.active.Store(at + 2)
	f.rest(at + 2)
	if enc.rests != 2 || dec.rests != 2 {
		t.Errorf("rested %d and %d times, want twice", enc.rests, dec.rests)
	}
}

// Flows that have carried something and fell idle hold little, and go on where they were.
func TestIdleFlowsHoldLittle(t *testing.T) {
	const limit = 256 << 10 // bytes a flow and end
	count := testkit.Count(200, 20)
	w := newWorld(t, func(near, far *Config) {
		for _, c := range []*Config{near, far} {
			c.Timeouts.Rest, c.BufferBytes = 50*time.Millisecond, 8<<30
		}
	})
	dst := serve(t, serverAddr, echo)
	data := mixed(128<<10, 9)
	exchange := func(c *net.TCPConn) {
		go c.Write(data)
		got := make([]byte, len(data))
		if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("an exchange: %v", err)
		}
	}
	exchange(w.steer(dst)) // what the first one makes stays
	held := func() int64 {
		var m runtime.MemStats
		for range 3 { // pools are emptied by the second collection
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc + m.StackInuse)
	}
	resting := func(a *agent) bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, f := range a.flows {
			if f.rested.Load() != f.active.Load() {
				return false
			}
		}
		return true
	}
	rest := func() {
		waitFor(t, "flows rest", 60*time.Second, func() bool { return resting(w.near) && resting(w.far) })
	}
	rest()
	before := held()
	conns := make([]*net.TCPConn, count)
	for i := range conns {
		conns[i] = w.steer(dst)
		exchange(conns[i])
	}
	rest()
	each := (held() - before) / int64(count) / 2
	t.Logf("%d bytes a flow and end, of %d flows; the application and the server in this process included", each, count)
	if each > limit && !raceDetector {
		t.Errorf("an idle flow holds %d bytes at each end, want at most %d", each, limit)
	}
	for _, c := range conns[:10] {
		exchange(c)
	}
}
