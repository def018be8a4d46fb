// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"math"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// tcpCALoss is the kernel's state of a flow whose retransmission timer has run out (enum tcp_ca_state).
const tcpCALoss = 4

// tcpiECN is the option that both ends have agreed on ECN (TCPI_OPT_ECN).
const tcpiECN = 8

// left is what a loss leaves of a window of w packets, from and to, by the papers and RFCs that the algorithms' files name; v
// is what the algorithm keeps, nil where nobody knows.
func left(name string, w uint32, v map[string]float64) (from, to uint32) {
	exactly := func(n uint32) (uint32, uint32) { return n, n }
	switch strings.TrimPrefix(name, ours) {
	case "cubic":
		return exactly(w * 717 / 1024)
	case "bic":
		if w > 14 {
			return exactly(w * 819 / 1024)
		}
	case "highspeed": // in slow start it is in the first row of its table
		return exactly(w - w/2)
	case "illinois":
		if v != nil {
			return exactly(w - uint32(float64(w)*v["beta"]))
		}
		return w - w/2, w - w/8
	case "yeah":
		less := w / 8
		if v != nil {
			return exactly(w - max(min(uint32(v["queue_packets"]), w/2), less))
		}
		return w - w/2, w - less
	case "veno":
		switch {
		case v == nil:
			return w / 2, w * 4 / 5
		case v["queue"] < 3:
			return exactly(w * 4 / 5)
		}
	case "lp": // it may have gone down before, by delay
		return 2, w / 2
	case "westwood": // what the path was seen to carry, which on a path that is not full is anything
		return 2, 2 * w
	}
	return exactly(w / 2) // Reno, Hybla, Vegas, and H-TCP at its first loss
}

// fromWestwood is ssthresh by Westwood+'s formula: BWE x RTTmin in segments.
func fromWestwood(v map[string]float64, mss int) uint32 {
	return uint32(max(v["bandwidth_Bps"]*v["rtt_min_us"]/1e6/float64(mss)+1e-6, 2))
}

// One lost segment is sent again once, and leaves of the window what the paper says.
func TestSingleLoss(t *testing.T) {
	p, reader := newPath(t, quiet), newReader(t)
	p.steady()
	eachWithKernels(t, func(t *testing.T, name string) {
		for _, gso := range []bool{true, false} {
			p.gso(gso)
			undisturbed(t, func() error {
				j := judge{t: t, name: name}
				s := p.stream(t, name)
				before := s.grow()
				v := p.values(reader, name)
				lost := p.Link.AB.Stats().Lost
				p.lose(s, some(before.Snd_cwnd))
				after := s.rest()
				final := p.values(reader, name)
				s.end()
				if n, again := p.Link.AB.Stats().Lost-lost, after.Total_retrans; before.Total_retrans > 0 || n != 1 || again != 1 {
					return disturbed("lost %d, sent again %d before and %d after", n, before.Total_retrans, again)
				}
				from, to := left(name, before.Snd_cwnd, v)
				if name == "tl_westwood" && final != nil {
					from = fromWestwood(final, s.mss)
					to = from
				}
				t.Logf("super-packets %v: of %d packets %d, want %d to %d; window %d", gso, before.Snd_cwnd, after.Snd_ssthresh, from, to, after.Snd_cwnd)
				if after.Snd_ssthresh < from || after.Snd_ssthresh > to {
					j.wrong("super-packets %v: a loss at %d leaves %d, want %d to %d; %v", gso, before.Snd_cwnd, after.Snd_ssthresh, from, to, v)
				}
				// The kernel's Westwood+ may have a bandwidth of next to nothing, and then grows from there again.
				if after.Snd_cwnd > after.Snd_ssthresh+2 && name != "westwood" {
					j.wrong("super-packets %v: the window is %d after a loss that leaves %d", gso, after.Snd_cwnd, after.Snd_ssthresh)
				}
				return j.err
			})
		}
		p.gso(true)
	})
}

// A link that is cut: the window falls to the least, the threshold to what the paper says, and the flow recovers.
func TestTimeout(t *testing.T) {
	p, reader := newPath(t, quiet), newReader(t)
	p.steady()
	eachWithKernels(t, func(t *testing.T, name string) {
		undisturbed(t, func() error {
			j := judge{t: t, name: name}
			s := p.stream(t, name)
			before := s.grow()
			v := p.values(reader, name)
			p.Link.SetDown(true)
			s.write(some(before.Snd_cwnd))
			cut := s.await("timed out", func(i *unix.TCPInfo) bool { return i.Ca_state == tcpCALoss })
			p.Link.SetDown(false)
			s.rest()
			s.write(200)
			after := s.rest()
			s.end()
			if before.Total_retrans > 0 {
				return disturbed("%d were sent again on a path that loses nothing", before.Total_retrans)
			}
			if cut.Lost < cut.Unacked { // RACK does not give up what was sent within the last round trip
				return disturbed("the timer ran out when %d of %d packets had only just been sent", cut.Unacked-cut.Lost, cut.Unacked)
			}
			from, to := left(name, before.Snd_cwnd, v)
			t.Logf("of %d packets %d, want %d to %d; window %d, then %d", before.Snd_cwnd, cut.Snd_ssthresh, from, to, cut.Snd_cwnd, after.Snd_cwnd)
			if cut.Snd_cwnd != 1 {
				j.wrong("the window is %d", cut.Snd_cwnd)
			}
			if cut.Snd_ssthresh < from || cut.Snd_ssthresh > to {
				j.wrong("a time-out at %d leaves %d, want %d to %d; %v", before.Snd_cwnd, cut.Snd_ssthresh, from, to, v)
			}
			if after.Snd_cwnd < min(10, cut.Snd_ssthresh) && !strings.HasSuffix(name, "lp") {
				j.wrong("the window is %d after 200 segments more", after.Snd_cwnd)
			}
			return j.err
		})
	})
}

// Congestion that a router marks, and does not drop by, leaves what a loss leaves, once for all marks of a window.
func TestECN(t *testing.T) {
	p, reader := newPath(t, quiet), newReader(t)
	p.steady()
	p.sysctl("tcp_ecn", "1")
	setSysctl(t, p.B, "tcp_ecn", "1")
	eachWithKernels(t, func(t *testing.T, name string) {
		undisturbed(t, func() error {
			j := judge{t: t, name: name}
			s := p.stream(t, name)
			before := s.grow()
			v := p.values(reader, name)
			marked := p.Link.AB.Stats().MarkedCE
			p.Link.AB.SetMark(true)
			s.write(some(before.Snd_cwnd))
			s.rest()
			p.Link.AB.SetMark(false)
			marked = p.Link.AB.Stats().MarkedCE - marked
			s.write(2) // what is acknowledged beyond the window ends the reduction
			after := s.rest()
			final := p.values(reader, name)
			s.end()
			if after.Total_retrans > 0 || marked != uint64(some(before.Snd_cwnd)) {
				return disturbed("%d sent again, %d marked", after.Total_retrans, marked)
			}
			from, to := left(name, before.Snd_cwnd, v)
			if name == "tl_westwood" && final != nil {
				from = fromWestwood(final, s.mss)
				to = from
			}
			t.Logf("of %d packets %d, want %d to %d; window %d", before.Snd_cwnd, after.Snd_ssthresh, from, to, after.Snd_cwnd)
			if after.Options&tcpiECN == 0 {
				j.wrong("the ends have not agreed on ECN")
			}
			if after.Snd_ssthresh < from || after.Snd_ssthresh > to {
				j.wrong("marks at %d leave %d, want %d to %d; %v", before.Snd_cwnd, after.Snd_ssthresh, from, to, v)
			}
			if after.Snd_cwnd > after.Snd_ssthresh+2 {
				j.wrong("the window is %d after marks that leave %d", after.Snd_cwnd, after.Snd_ssthresh)
			}
			return j.err
		})
	})
}

// RFC 5681 and 3465: one packet more for each window acknowledged, whatever one ACK stands for.
func TestAdditiveIncrease(t *testing.T) {
	p := newPath(t, quiet)
	p.steady()
	h := newHost(t, modes(t)[0])
	h.register("tl_reno")
	for _, name := range []string{"tl_reno", "reno"} {
		for _, gso := range []bool{true, false} {
			p.gso(gso)
			undisturbed(t, func() error {
				s := p.stream(t, name)
				before := s.grow()
				p.lose(s, some(before.Snd_cwnd))
				before = s.rest()
				s.write(12 * int(before.Snd_cwnd))
				after := s.rest()
				s.end()
				if after.Total_retrans != 1 {
					return disturbed("sent again: %d", after.Total_retrans)
				}
				w, sent := float64(before.Snd_cwnd), 12*float64(before.Snd_cwnd)
				want := math.Sqrt((w-0.5)*(w-0.5)+2*sent) - w + 0.5 // w + (w+1) + ... = sent
				got := float64(after.Snd_cwnd) - w
				t.Logf("%s, super-packets %v: %.0f more than %.0f for %.0f, want %.1f", name, gso, got, w, sent, want)
				if got > want+1 || got < want-2.5 { // the last window is not full
					t.Errorf("%s, super-packets %v: %.0f more than %.0f for %.0f, want %.1f", name, gso, got, w, sent, want)
				}
				return nil
			})
		}
	}
}
