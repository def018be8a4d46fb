// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/cc/insides"
	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/vmtest/lab"
)

// A queue that grows ends slow start before anything is lost, where the algorithm looks at delay: CUBIC by HyStart, Vegas by
// its gamma. Reno and those that start as it does go on until the queue overflows; then all have a threshold.
func TestSlowStartExit(t *testing.T) {
	// Where time is not exact, a stall makes one measurement of a whole round trip. What one run shows there, others may not.
	again := testkit.Scale() > 1 && !testkit.Exact()
	p := newStartPath(t)
	eachWithKernels(t, func(t *testing.T, name string) { slowStartExit(t, p, name, again) })
}

// The same where time is exact: there is no excuse then.
func TestExactSlowStartExit(t *testing.T) {
	testkit.NeedTime(t)
	p := newStartPath(t)
	byDelay := func(name string) bool { return name == "tl_cubic" || name == "tl_vegas" }
	withKernels(t, byDelay, func(t *testing.T, name string) { slowStartExit(t, p, name, false) })
}

func newStartPath(t *testing.T) *path {
	p := newPath(t, lab.Options{Rate: 20e6, RTT: 20 * time.Millisecond, QueueBytes: 400 * 1500, LossAB: true})
	p.steady()
	return p
}

func slowStartExit(t *testing.T, p *path, name string, again bool) {
	const enough = 300 // segments: a window of so many is nine times what the path holds
	undisturbed(t, func() error {
		j := judge{t: t, name: name, again: again}
		s := p.stream(t, name)
		s.write(enough)
		early := s.rest()
		if early.Total_retrans > 0 {
			s.end()
			return disturbed("%d were sent again on a path that loses nothing", early.Total_retrans)
		}
		for n := 0; n < 5 && s.now().Total_retrans == 0; n++ {
			s.write(enough)
		}
		late := s.rest()
		s.end()
		t.Logf("window %d, threshold %d; with losses %d, %d", early.Snd_cwnd, early.Snd_ssthresh, late.Snd_cwnd, late.Snd_ssthresh)
		base := strings.TrimPrefix(name, ours)
		by := base == "cubic" || base == "vegas"
		// YeAH sets a threshold when it drains its queue, and LP goes down by delay.
		if early.Snd_ssthresh < infinite != by && base != "yeah" && base != "lp" {
			j.wrong("with a queue and no loss the threshold is %d", early.Snd_ssthresh)
		}
		if base == "cubic" && early.Snd_ssthresh < 16 {
			j.wrong("HyStart ends slow start at %d packets, below 16", early.Snd_ssthresh)
		}
		if late.Total_retrans > 0 && late.Snd_ssthresh >= infinite {
			j.wrong("after losses there is no threshold")
		}
		return j.err
	})
}

// After a pause the window is that of a beginning (RFC 2861, as the kernel has it: halved for each time-out that passes), and
// the threshold remembers three quarters of what it was.
func TestIdleRestart(t *testing.T) {
	p := newPath(t, quiet)
	p.sysctl("tcp_early_retrans", "0")
	eachWithKernels(t, func(t *testing.T, name string) {
		s := p.stream(t, name)
		before := s.grow()
		s.await("idle", func(i *unix.TCPInfo) bool { return i.Last_data_sent > 6*i.Rto/1000 })
		p.Link.SetDown(true) // so that nothing comes back before it has been looked at
		defer p.Link.SetDown(false)
		s.write(16) // no more: the rest must wait in the socket
		after := s.now()
		p.Link.SetDown(false)
		s.rest()
		s.end()
		t.Logf("window %d, threshold %d; after the pause %d, %d, in flight %d", before.Snd_cwnd, before.Snd_ssthresh, after.Snd_cwnd, after.Snd_ssthresh, after.Unacked)
		if after.Snd_cwnd > 10 || after.Unacked > 10 {
			t.Errorf("after a pause the window is %d, with %d in flight, want at most 10", after.Snd_cwnd, after.Unacked)
		}
		if least := before.Snd_cwnd/2 + before.Snd_cwnd/4; after.Snd_ssthresh < least && after.Ca_state != tcpCALoss {
			t.Errorf("after a pause the threshold is %d, want %d or more", after.Snd_ssthresh, least)
		}
	})
}

// A pause does not count as time on CUBIC's curve: the curve begins as much later, and nothing bursts.
func TestCubicPause(t *testing.T) {
	const pause = 5 * time.Second // without the shift the curve would be back at its middle
	p, reader, h := newPath(t, quiet), newReader(t), newHost(t, modes(t)[0])
	p.steady()
	other := h.register("tl_cubic").Other
	for _, name := range []string{"tl_cubic", "cubic"} {
		if !available(t, name) {
			continue
		}
		undisturbed(t, func() error {
			s := p.stream(t, name)
			before := s.grow()
			p.lose(s, some(before.Snd_cwnd))
			s.rest()
			first := time.Now()
			s.write(3 * int(before.Snd_cwnd)) // begins the curve
			before = s.rest()
			epoch := p.epoch(t, reader, name)
			worked := time.Since(first)
			time.Sleep(pause)
			began := time.Now()
			s.write(3 * int(before.Snd_cwnd))
			after := s.rest()
			shifted := p.epoch(t, reader, name) - epoch
			worked += time.Since(began)
			s.end()
			if after.Total_retrans != 1 {
				return disturbed("sent again: %d", after.Total_retrans)
			}
			t.Logf("%s: window %d, after the pause %d; the epoch is shifted by %v", name, before.Snd_cwnd, after.Snd_cwnd, shifted)
			if name == "tl_cubic" && !other && (shifted < pause-50*time.Millisecond || shifted > time.Since(first)) {
				t.Errorf("%s: a pause of %v has shifted the epoch by %v", name, pause, shifted)
			}
			// The curve is steepest at its beginning, 3 C K^2 packets/s with K about 4 s; three windows of Reno's pace beside.
			if most := 3*0.4*4.4*4.4*worked.Seconds() + 4; float64(after.Snd_cwnd) > float64(before.Snd_cwnd)+most {
				t.Errorf("%s: after a pause the window goes from %d to %d in %v of work, want at most %.0f more", name, before.Snd_cwnd, after.Snd_cwnd, worked, most)
			}
			return nil
		})
	}
}

// epoch is when the growth began, by the kernel's clock; 0 of the kernel's cubic.
func (p *path) epoch(t *testing.T, r *insides.Reader, name string) time.Duration {
	t.Helper()
	if !strings.HasPrefix(name, ours) {
		return 0
	}
	var sockets []insides.Socket
	if err := p.A.Do(func() (err error) { sockets, err = r.Read(); return err }); err != nil {
		t.Fatal(err)
	}
	a, _ := Lookup(name)
	spec, err := a.load()
	if err != nil {
		t.Fatal(err)
	}
	fields, err := fieldsOf(a, spec)
	i := slices.IndexFunc(sockets, func(s insides.Socket) bool { return s.Name == name && s.Cwnd > 0 })
	f := fields["epoch_us"]
	if err != nil || i < 0 || f.size != 8 {
		t.Fatalf("no epoch: %+v, %v", sockets, err)
	}
	return time.Duration(binary.NativeEndian.Uint64(sockets[i].State[f.offset:])) * time.Microsecond
}

// A flow may go from each algorithm to each other one and to the kernel's, and takes its window along.
func TestSwitchBetweenAll(t *testing.T) {
	p := newPath(t, quiet)
	p.steady()
	h := newHost(t, modes(t)[0])
	names := []string{"reno", "cubic"}
	for _, a := range catalogue {
		h.register(a.Name)
		names = append(names, a.Name)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !available(t, name) })
	s := p.stream(t, names[0])
	s.grow()
	changes := 0
	for _, pair := range circuit(len(names), testkit.Count(len(names)-1, 3)) {
		name := names[pair]
		before := s.now().Snd_cwnd
		if err := setName(s.raw, name); err != nil {
			t.Fatalf("to %s: %v", name, err)
		}
		s.want(name)
		if after := s.now().Snd_cwnd; after != before {
			t.Errorf("the change to %s takes the window from %d to %d", name, before, after)
		}
		s.write(4)
		s.rest()
		changes++
	}
	t.Logf("%d changes among %d algorithms", changes, len(names))
	if err := s.SetDeadline(time.Now().Add(testkit.Wait(20 * time.Second))); err != nil {
		t.Fatal(err)
	}
	s.end()
}

// circuit is a walk among n places from 0 back to 0 that goes from each to each of the `steps` next ones, once.
func circuit(n, steps int) []int {
	ways := make([][]int, n)
	for from := range n {
		for step := 1; step <= steps; step++ {
			ways[from] = append(ways[from], (from+step)%n)
		}
	}
	// Hierholzer: as many ways lead out of a place as into it, so a walk ends only where it began.
	var walk []int
	for stack := []int{0}; len(stack) > 0; {
		at := stack[len(stack)-1]
		if len(ways[at]) == 0 {
			walk, stack = append(walk, at), stack[:len(stack)-1]
			continue
		}
		stack, ways[at] = append(stack, ways[at][0]), ways[at][1:]
	}
	slices.Reverse(walk)
	return walk[1:]
}

// The walk of the test above does meet each pair once.
func TestCircuit(t *testing.T) {
	for _, n := range []int{2, 5, 14} {
		seen, at := map[string]int{}, 0
		for _, to := range circuit(n, n-1) {
			seen[fmt.Sprint(at, to)]++
			at = to
		}
		if len(seen) != n*(n-1) || at != 0 {
			t.Errorf("%d places: %d ways of %d, and it ends at %d", n, len(seen), n*(n-1), at)
		}
	}
}
