// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ownerEnv makes the test binary a process that owns a lab and waits to be killed.
const ownerEnv = "LAB_TEST_OWNER"

func TestMain(m *testing.M) {
	if os.Getenv(ownerEnv) != "" {
		ownLab()
	}
	os.Exit(m.Run())
}

func newLab(t *testing.T, o Options) *Lab {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	if _, err := cgroupMount(); err != nil {
		t.Skip(err)
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skip(err)
	}
	l, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// families are the addresses of site B, by name.
func families(l *Lab) map[string]netip.Addr {
	return map[string]netip.Addr{"ipv4": l.B.Addr4, "ipv6": l.B.Addr6}
}

// serve opens a listener at site B and handles each connection in a goroutine.
func serve(t *testing.T, l *Lab, addr netip.Addr, handle func(net.Conn)) string {
	t.Helper()
	ln, err := l.B.Listen("tcp", netip.AddrPortFrom(addr, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				handle(c)
			}()
		}
	}()
	return ln.Addr().String()
}

func dial(t *testing.T, l *Lab, addr string) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c, err := l.A.Dial(ctx, "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestRTT(t *testing.T) {
	const rtt = 80 * time.Millisecond
	l := newLab(t, Options{RTT: rtt})
	for name, addr := range families(l) {
		t.Run(name, func(t *testing.T) {
			to := serve(t, l, addr, func(net.Conn) {})
			best := time.Hour
			for range 5 {
				start := time.Now()
				dial(t, l, to).Close()
				best = min(best, time.Since(start))
			}
			if best < rtt || best > 2*rtt {
				t.Errorf("connect took %v on a link of %v", best, rtt)
			}
		})
	}
}

func TestExactDeliveryWithLoss(t *testing.T) {
	data := make([]byte, 8<<20)
	rng := rand.NewChaCha8([32]byte{1})
	_, _ = rng.Read(data)
	want := sha256.Sum256(data)

	l := newLab(t, Options{Rate: 200e6, RTT: 4 * time.Millisecond, Loss: 0.01, Seed: 3})
	for name, addr := range families(l) {
		t.Run(name, func(t *testing.T) {
			before := l.Link.Stats()
			to := serve(t, l, addr, func(c net.Conn) { _, _ = c.Write(data) })
			h := sha256.New()
			if n, err := io.Copy(h, dial(t, l, to)); err != nil || n != int64(len(data)) {
				t.Fatalf("%d bytes arrived: %v", n, err)
			}
			if [32]byte(h.Sum(nil)) != want {
				t.Error("what arrived is not what was sent")
			}
			st := l.Link.Stats().Since(before)
			if st.Lost < 20 || st.Retransmits == 0 {
				t.Errorf("%d segments lost, %d sent again, of %d", st.Lost, st.Retransmits, st.Segments)
			}
			if st.WriteErrors != 0 || st.PartlyNew != 0 {
				t.Errorf("%d packets refused, %d partly new", st.WriteErrors, st.PartlyNew)
			}
			if st.Bytes < uint64(len(data)) {
				t.Errorf("%d bytes on the link for %d", st.Bytes, len(data))
			}
			t.Logf("%+v, late on average %v", st, st.LateAvg())
		})
	}
}

func TestNothingSentTwiceWithoutLoss(t *testing.T) {
	l := newLab(t, Options{Rate: 100e6, RTT: 10 * time.Millisecond, QueueBDP: 100})
	to := serve(t, l, l.B.Addr4, func(c net.Conn) { _, _ = c.Write(make([]byte, 4<<20)) })
	if _, err := io.Copy(io.Discard, dial(t, l, to)); err != nil {
		t.Fatal(err)
	}
	st := l.Link.Stats()
	if st.LateMax > 50*time.Millisecond {
		t.Skipf("the machine was too busy: a packet came %v late, and timers may have run out", st.LateMax)
	}
	if st.Lost+st.QueueDrops+st.DownDrops != 0 || st.Retransmits > 5 {
		t.Errorf("lost or counted as sent twice on a clean link: %+v", st)
	}
}

func TestRate(t *testing.T) {
	const rate = 40e6
	l := newLab(t, Options{Rate: rate, RTT: 20 * time.Millisecond})
	to := serve(t, l, l.B.Addr4, func(c net.Conn) { _, _ = c.Write(make([]byte, 8<<20)) })
	start := time.Now()
	if _, err := io.Copy(io.Discard, dial(t, l, to)); err != nil {
		t.Fatal(err)
	}
	got := float64(8<<20) * 8 / time.Since(start).Seconds()
	if got > rate || got < rate/4 {
		t.Errorf("%.1f Mbit/s on a link of %.0f", got/1e6, rate/1e6)
	}
}

func TestChangedLive(t *testing.T) {
	l := newLab(t, Options{})
	to := serve(t, l, l.B.Addr4, func(c net.Conn) { _, _ = io.Copy(c, c) })
	c := dial(t, l, to)
	echo := func(wait time.Duration) error {
		if _, err := c.Write([]byte("x")); err != nil {
			return err
		}
		_ = c.SetReadDeadline(time.Now().Add(wait))
		_, err := c.Read(make([]byte, 1))
		return err
	}
	if err := echo(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	l.Link.SetDown(true)
	if err := echo(100 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("something came over a link that is down: %v", err)
	}
	l.Link.SetDown(false)
	l.Link.SetRTT(60 * time.Millisecond)
	l.Link.SetRate(5e6)
	l.Link.SetLoss(0)
	start := time.Now()
	if err := echo(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d < 30*time.Millisecond {
		t.Errorf("an answer after %v, over 60 ms", d)
	}
	if st := l.Link.Stats(); st.DownDrops == 0 || st.Retransmits == 0 {
		t.Errorf("nothing was lost or sent again: %+v", st)
	}
}

func TestTwoLabsAtOnce(t *testing.T) {
	one, two := newLab(t, Options{}), newLab(t, Options{})
	for _, l := range []*Lab{one, two} {
		to := serve(t, l, l.B.Addr4, func(c net.Conn) { fmt.Fprint(c, l.B.Cgroup) })
		b, err := io.ReadAll(dial(t, l, to))
		if err != nil || string(b) != l.B.Cgroup {
			t.Errorf("read %q: %v", b, err)
		}
	}
}

func TestCgroupParent(t *testing.T) {
	outer := newLab(t, Options{NoIPv6: true})
	l := newLab(t, Options{NoIPv6: true, CgroupParent: outer.A.CgroupPath})
	if !strings.HasPrefix(l.B.CgroupPath, outer.A.CgroupPath+"/") || !strings.HasSuffix(l.B.Cgroup, l.B.CgroupPath) {
		t.Errorf("cgroup %s, below the mount %s", l.B.Cgroup, l.B.CgroupPath)
	}
	if l.A.Addr6.IsValid() {
		t.Errorf("a lab without IPv6 has %s", l.A.Addr6)
	}
}

func TestBadOptions(t *testing.T) {
	for _, o := range []Options{{Loss: 2}, {RTT: -1}, {QueueBDP: -1}, {DSCP: 64}} {
		if l, err := New(o); err == nil {
			t.Errorf("%+v is taken", o)
			l.Close()
		}
	}
}

func TestChildIsInNamespaceAndCgroup(t *testing.T) {
	l := newLab(t, Options{})
	inner, addr, err := l.A.NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	for name, n := range map[string]*Namespace{"site": l.A.Namespace, "inner": inner} {
		t.Run(name, func(t *testing.T) {
			out, err := n.Output(n.Command(t.Context(), "sh", "-c", "readlink /proc/self/ns/net; grep ^0:: /proc/self/cgroup"))
			if err != nil {
				t.Fatal(err)
			}
			ns, err := os.Readlink(n.NetnsPath())
			if err != nil {
				t.Fatal(err)
			}
			if want := ns + "\n0::" + n.CgroupPath + "\n"; string(out) != want {
				t.Errorf("the child is in %q, not %q", out, want)
			}
		})
	}
	t.Run("over the link", func(t *testing.T) {
		for family, to := range families(l) {
			at := serve(t, l, to, func(c net.Conn) { fmt.Fprint(c, c.RemoteAddr()) })
			c, err := inner.Dial(t.Context(), "tcp", at)
			if err != nil {
				t.Fatal(family, err)
			}
			defer c.Close()
			b, _ := io.ReadAll(c)
			if family == "ipv4" && !strings.HasPrefix(string(b), addr.String()+":") {
				t.Errorf("the server saw %s, not %s", b, addr)
			}
		}
	})
}

func TestAddAddress(t *testing.T) {
	l := newLab(t, Options{})
	for _, s := range []string{"10.81.2.9/24", "198.51.100.7/24", "2001:db8:7::7/64"} {
		p := netip.MustParsePrefix(s)
		if err := l.B.AddAddress(p); err != nil {
			t.Fatal(err)
		}
		to := serve(t, l, p.Addr(), func(c net.Conn) { fmt.Fprint(c, "here") })
		if b, err := io.ReadAll(dial(t, l, to)); string(b) != "here" {
			t.Errorf("%s: read %q: %v", s, b, err)
		}
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	l := newLab(t, Options{})
	// The shell's child outlives a kill of the shell: the cgroup must find it.
	p, err := l.A.Start(l.A.Command(context.Background(), "sh", "-c", "sleep 1000 & echo $!; wait"))
	if err != nil {
		t.Fatal(err)
	}
	for len(l.A.mustPids(t)) < 2 {
		time.Sleep(5 * time.Millisecond)
	}
	pids := l.A.mustPids(t)
	netns := l.A.NetnsPath()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if !gone(pid) {
			t.Errorf("process %d is still there", pid)
		}
	}
	for _, path := range []string{l.A.Cgroup, l.cgroup.dir, netns} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", path, err)
		}
	}
	if err := p.Wait(); err == nil {
		t.Error("the killed process ended well")
	}
	if _, err := l.A.Start(l.A.Command(context.Background(), "true")); !errors.Is(err, ErrClosed) {
		t.Errorf("a start after Close gave %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func (n *Namespace) mustPids(t *testing.T) []int {
	t.Helper()
	return (&cgroup{dir: n.Cgroup}).pids()
}

func gone(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, state, _ := strings.Cut(string(b), ") ")
	return strings.HasPrefix(state, "Z")
}

// ownLab is the other process of TestKilledOwner.
func ownLab() {
	l, err := New(Options{})
	if err == nil {
		var p *Process
		if p, err = l.B.Start(exec.Command("sleep", "1000")); err == nil {
			fmt.Println(p.Process.Pid, l.cgroup.dir)
			select {}
		}
	}
	fmt.Println(err)
	os.Exit(1)
}

func TestKilledOwner(t *testing.T) {
	newLab(t, Options{}) // for its skips
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	owner := exec.Command(exe)
	owner.Env = append(os.Environ(), ownerEnv+"=1")
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	first, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
	pid, err := strconv.Atoi(first)
	_ = owner.Process.Signal(unix.SIGKILL)
	_ = owner.Wait()
	if err != nil {
		t.Fatalf("the owner said %q", line)
	}
	for deadline := time.Now().Add(5 * time.Second); !gone(pid) && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	if !gone(pid) {
		t.Errorf("child %d outlives its owner", pid)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Fatal(err)
	}
	newLab(t, Options{})
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the next lab left the dead one's cgroup: %v", err)
	}
}
