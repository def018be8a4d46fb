// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"encoding/binary"
	"io"
	mrand "math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/trunkline/trunkline/internal/testkit"
)

// answers are parts of some bytes. A request is a seed; the answer follows from it.
type answers []byte

func (a answers) to(seed uint64) []byte {
	r := mrand.New(mrand.NewPCG(seed, 3))
	n := r.IntN(1 << (r.IntN(20) + 1))
	from := r.IntN(len(a) - n + 1)
	return a[from : from+n]
}

// TestShortFlows: clients and servers of all habits, each closing as soon as it has nothing more to say, and readers that
// take their time. Every byte arrives, and every end is a clean one.
func TestShortFlows(t *testing.T) {
	w := newWorld(t, patient)
	flows, workers := testkit.Count(1500, 200), 24
	if testing.Short() {
		flows = 300
	}
	answer := answers(mixed(1<<20, 77)).to
	dst := serve(t, serverAddr, func(c *net.TCPConn) {
		var head [8]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			t.Errorf("server: %v", err)
			return
		}
		seed := binary.BigEndian.Uint64(head[:])
		if seed%3 == 0 { // waits for the client's end
			if rest, err := io.ReadAll(c); err != nil || !bytes.Equal(rest, answer(seed+1)) {
				t.Errorf("server of %d: %d bytes, %v", seed, len(rest), err)
			}
		}
		if _, err := c.Write(answer(seed)); err != nil {
			t.Errorf("server of %d: writing: %v", seed, err)
		}
	})
	client := func(seed uint64) {
		c, err := w.trySteer(dst)
		if err != nil {
			t.Errorf("client %d: %v", seed, err)
			return
		}
		defer c.Close()
		request := binary.BigEndian.AppendUint64(nil, seed)
		if seed%3 == 0 {
			request = append(request, answer(seed+1)...)
		}
		c.Write(request)
		if seed%2 == 0 || seed%3 == 0 {
			c.CloseWrite()
		}
		want, got := answer(seed), []byte(nil)
		for buf := make([]byte, 32<<10); err == nil; {
			var n int
			n, err = c.Read(buf)
			got = append(got, buf[:n]...)
			if seed%5 == 0 {
				time.Sleep(3 * time.Millisecond)
			}
		}
		if err != io.EOF || !bytes.Equal(got, want) {
			t.Errorf("client %d: %d of %d bytes, %v", seed, len(got), len(want), err)
		}
	}
	var wg sync.WaitGroup
	seeds := make(chan uint64)
	for range workers {
		wg.Go(func() {
			for s := range seeds {
				client(s)
			}
		})
	}
	for s := range flows {
		seeds <- uint64(s)
	}
	close(seeds)
	wg.Wait()
	waitFor(t, "flows end", 20*time.Second, func() bool { return w.near.live()+w.far.live() == 0 })
}
