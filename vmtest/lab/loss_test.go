// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/trunkline/trunkline/internal/testkit"
)

// datagrams are a socket at B and one at A that sends to it.
func datagrams(t *testing.T, l *Lab) (to net.PacketConn, from net.Conn) {
	t.Helper()
	err := l.B.Do(func() (err error) {
		to, err = net.ListenPacket("udp", netip.AddrPortFrom(l.B.Addr4, 0).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { to.Close() })
	if from, err = l.A.Dial(t.Context(), "udp", to.LocalAddr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { from.Close() })
	return to, from
}

// lostOf sends datagrams with numbers, slowly enough for any queue, and returns those that do not arrive. Behind them comes one
// more, of which nothing is lost.
func lostOf(t *testing.T, l *Lab, to net.PacketConn, from net.Conn, n int) (lost []int) {
	t.Helper()
	before := l.Link.AB.Stats().Packets
	go func() {
		for i := range n + 1 {
			if i == n {
				for l.Link.AB.Stats().Packets < before+uint64(n) {
					time.Sleep(time.Millisecond)
				}
				l.Link.AB.SetLoss(0)
			}
			_, _ = from.Write(binary.BigEndian.AppendUint32(nil, uint32(i)))
			if i%20 == 19 {
				time.Sleep(time.Millisecond)
			}
		}
	}()
	_ = to.SetReadDeadline(time.Now().Add(testkit.Wait(20 * time.Second)))
	buf := make([]byte, 100)
	for next := 0; next <= n; next++ {
		k, _, err := to.ReadFrom(buf)
		if err != nil {
			t.Fatal(err)
		}
		for got := int(binary.BigEndian.Uint32(buf[:k])); next < got; next++ {
			lost = append(lost, next)
		}
	}
	return lost
}

// What is lost is a matter of the seed alone, under both emulations.
func TestSeedSaysWhatIsLost(t *testing.T) {
	emulations(t, func(t *testing.T, e Emulation) {
		const loss = 0.05
		n := testkit.Count(2000, 500)
		for _, burst := range []float64{0, 4} {
			t.Run(fmt.Sprintf("burst %g", burst), func(t *testing.T) {
				l := newLab(t, Options{Emulation: e, Loss: loss, Burst: burst, Seed: 1, NoIPv6: true})
				to, from := datagrams(t, l)
				for i, seed := range []uint64{1, 2, 1} {
					if i > 0 {
						l.Link.SetLoss(loss)
						l.Link.Restart(seed)
					}
					ch, want := chain{key: lossKey(seed, numberAB)}, []int(nil)
					for k := range n {
						if ch.lost(newOdds(loss, burst)) {
							want = append(want, k)
						}
					}
					before := l.Link.AB.Stats()
					if got := lostOf(t, l, to, from, n); !slices.Equal(got, want) {
						t.Errorf("seed %d: lost %v, want %v", seed, got, want)
					}
					st := l.Link.AB.Stats().Since(before)
					if st.Lost != uint64(len(want)) || st.Packets != uint64(n+1) || st.Bytes != uint64(n+1)*32 || st.QueueDrops != 0 {
						t.Errorf("seed %d: %+v", seed, st)
					}
				}
			})
		}
	})
}

// Only data from A to B is lost with LossAB, at a share at which connections would hardly come about otherwise.
func TestLossOfDataAlone(t *testing.T) {
	emulations(t, func(t *testing.T, e Emulation) {
		l := newLab(t, Options{Emulation: e, RTT: 2 * time.Millisecond, Loss: 1, LossAB: true})
		families(t, l, func(t *testing.T, b netip.Addr) {
			l.Link.AB.SetLoss(1)
			before, back := l.Link.AB.Stats(), l.Link.BA.Stats()
			got := make(chan byte, 1)
			to := serve(t, l, b, func(c net.Conn) {
				fmt.Fprint(c, "hello")
				buf := make([]byte, 1)
				_, _ = io.ReadFull(c, buf)
				got <- buf[0]
			})
			c := dial(t, l, to)
			if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			for l.Link.AB.Stats().Lost < before.Lost+2 { // it is sent again, and lost again
				time.Sleep(10 * time.Millisecond)
			}
			l.Link.AB.SetLoss(0)
			if b := <-got; b != 'x' {
				t.Errorf("%q arrived", b)
			}
			if lost := l.Link.BA.Stats().Lost - back.Lost; lost != 0 {
				t.Errorf("%d packets lost on the way back", lost)
			}
		})
	})
}

// With OneWay the way back takes no time.
func TestOneWay(t *testing.T) {
	testkit.NeedTime(t)
	emulations(t, func(t *testing.T, e Emulation) {
		const rtt = 60 * time.Millisecond
		l := newLab(t, Options{Emulation: e, RTT: rtt, OneWay: true, NoIPv6: true})
		between(t, "connect time", connectTime(t, l, l.B.Addr4), rtt, 3*rtt/2)
		to, from := datagrams(t, l)
		forth, back := time.Hour, time.Hour // the best of some
		for range 5 {
			start := time.Now()
			if _, err := from.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			_, sender, err := to.ReadFrom(make([]byte, 1))
			if err != nil {
				t.Fatal(err)
			}
			forth, start = min(forth, time.Since(start)), time.Now()
			if _, err := to.WriteTo([]byte("x"), sender); err != nil {
				t.Fatal(err)
			}
			if _, err := from.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			back = min(back, time.Since(start))
		}
		between(t, "forth", forth, rtt, 3*rtt/2)
		between(t, "back", back, 0, rtt/2)
	})
}

// A packet is an MTU for whom that matters.
func TestNoGSO(t *testing.T) {
	l := newLab(t, Options{NoGSO: true, Rate: 50e6})
	families(t, l, func(t *testing.T, b netip.Addr) {
		before := l.Link.Stats()
		upload(t, l, b, 1<<20)
		st := l.Link.Stats().Since(before)
		if st.Packets != st.Segments || st.Packets < 1<<20/wanMTU || st.WriteErrors != 0 {
			t.Errorf("%+v", st)
		}
	})
}
