// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/cc"
	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/loader/policy"
)

// pathOf is the path of a flow to an address under a rule for all of its family.
func pathOf(a netip.Addr) netip.Prefix {
	if a.Is4() {
		return netip.PrefixFrom(a, 24).Masked()
	}
	return netip.PrefixFrom(a, 48).Masked()
}

// allOf is every address of the family.
func allOf(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, 0).Masked() }

func choose(t *testing.T, l *Loader, choices ...Choice) {
	t.Helper()
	if err := l.SetChoices(choices); err != nil {
		t.Fatal(err)
	}
}

// becomes sends until the connection has a congestion control, and returns how long that took.
func becomes(t *testing.T, c *net.TCPConn, name string) time.Duration {
	t.Helper()
	start := time.Now()
	for time.Since(start) < testkit.Wait(5*time.Second) {
		if congestionOf(t, c) == name {
			return time.Since(start)
		}
		sendOnly(t, c, 1000)
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("it has %s, want %s", congestionOf(t, c), name)
	return 0
}

// stays sends for some round trips and wants that the connection keeps its congestion control.
func stays(t *testing.T, l *Loader, c *net.TCPConn, name string) {
	t.Helper()
	const n = 200_000
	now := func() Flow { return flowOf(t, l, c, func(Flow) bool { return true }) }
	before := now().BytesAcked
	// In pieces: telemetry is not of every round trip, and an idle flow has none.
	for end := time.Now().Add(testkit.Wait(20 * time.Second)); now().BytesAcked < before+n/2; time.Sleep(testkit.Wait(10 * time.Millisecond)) {
		if time.Now().After(end) {
			t.Fatalf("%d bytes acknowledged, %d before: %+v", now().BytesAcked, before, now())
		}
		sendOnly(t, c, n/10)
	}
	if got := congestionOf(t, c); got != name {
		t.Errorf("it has %s, want %s still", got, name)
	}
}

func established(f Flow) bool { return f.State == "established" }

// A flow has the choice of its path from its SYN and follows a change; what is not there, or not its rule's, changes nothing.
func TestChoiceOfPath(t *testing.T) {
	inside(t, lan, func(t *testing.T, s site) {
		for _, b := range s.dests() {
			t.Run(pathOf(b).String(), func(t *testing.T) {
				choiceOfPath(t, s, b)
				choiceAndApplication(t, s, b)
				choiceOfAccepted(t, s, b)
			})
		}
	}, nil)
}

func autoRules(b netip.Addr) []policy.Rule {
	return []policy.Rule{
		{ID: 1, Name: "auto", Remote: allOf(b), Congestion: "cubic", Auto: true},
		{ID: 2, Name: "fixed", Remote: pathOf(b), Ports: []uint16{idlePort}, Congestion: "cubic"},
		{ID: 3, Name: "none", Remote: pathOf(b), Ports: []uint16{hashPort}, Auto: true},
	}
}

func choiceOfPath(t *testing.T, s site, b netip.Addr) {
	l := loadAt(t, s, autoRules(b)...)
	live, fixed := dialAt(t, b, sinkPort), dialAt(t, b, idlePort)
	f := flowOf(t, l, live, established)
	if !f.Auto || f.Path != pathOf(b) || f.Congestion != "cubic" || congestionOf(t, live) != "cubic" {
		t.Errorf("without a choice: %+v", f)
	}
	choose(t, l, Choice{Prefix: netip.PrefixFrom(b, pathOf(b).Bits()), Congestion: "reno"})
	t.Logf("a live flow followed after %v", becomes(t, live, "reno").Round(time.Millisecond))
	if f = flowOf(t, l, live, func(f Flow) bool { return f.Congestion == "reno" }); f.CongestionErrno != 0 {
		t.Errorf("followed: %+v", f)
	}
	unanswered(t, l, b)
	c := dialAt(t, b, sinkPort)
	if got := congestionOf(t, c); got != "reno" {
		t.Errorf("a new flow has %s", got)
	}
	transfer(t, c, 1<<20)
	stays(t, l, fixed, "cubic")
	if f = flowOf(t, l, fixed, established); f.Auto || f.Path != pathOf(b) {
		t.Errorf("of a rule that names one: %+v", f)
	}

	if err := l.Apply(autoRules(b), nil); err != nil {
		t.Fatal(err)
	}
	if got := congestionOf(t, dialAt(t, b, sinkPort)); got != "reno" {
		t.Errorf("after a reload a new flow has %s", got)
	}
	choose(t, l)
	stays(t, l, live, "reno")
	if got := congestionOf(t, dialAt(t, b, sinkPort)); got != "cubic" {
		t.Errorf("when the choice is gone a new flow has %s", got)
	}
	transfer(t, live, 1<<20)
}

// unanswered looks at a flow whose SYN nobody answers.
func unanswered(t *testing.T, l *Loader, b netip.Addr) {
	t.Helper()
	raw := b.AsSlice()
	raw[len(raw)-1] ^= 0x55
	nobody, _ := netip.AddrFromSlice(raw)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		var d net.Dialer
		if c, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(nobody, sinkPort).String()); err == nil {
			c.Close()
		}
	}()
	defer func() { cancel(); <-done }()
	for end := time.Now().Add(testkit.Wait(2 * time.Second)); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		flows, err := l.Flows()
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(flows, func(f Flow) bool { return f.Remote.Addr() == nobody })
		if i >= 0 {
			if f := flows[i]; f.State != "syn-sent" || f.Congestion != "reno" || !f.Auto || f.LossEvents != 0 {
				t.Errorf("before an answer: %+v", f)
			}
			return
		}
	}
	t.Error("no flow to an address that does not answer")
}

// What an application sets stays until the choice changes, and so does what a flow has where the choice is not to be had.
func choiceAndApplication(t *testing.T, s site, b netip.Addr) {
	l := loadAt(t, s, autoRules(b)...)
	reno := Choice{Prefix: pathOf(b), Congestion: "reno"}
	choose(t, l, reno)
	c := dialAt(t, b, sinkPort)
	option(t, c, func(fd int) (struct{}, error) {
		return struct{}{}, unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic")
	})
	stays(t, l, c, "cubic")
	choose(t, l, reno)
	if err := l.Apply(autoRules(b), nil); err != nil {
		t.Fatal(err)
	}
	stays(t, l, c, "cubic")
	absent := Choice{Prefix: pathOf(b), Congestion: "no-such-thing"}
	choose(t, l, absent)
	stays(t, l, c, "cubic")
	f := flowOf(t, l, c, func(f Flow) bool { return f.CongestionErrno != 0 })
	if f.CongestionErrno != int32(unix.ENOENT) || f.Congestion != "cubic" {
		t.Errorf("a choice that is not there: %+v", f)
	}
	d := dialAt(t, b, hashPort)
	f = flowOf(t, l, d, established)
	if f.CongestionErrno != int32(unix.ENOENT) || f.Congestion != kernelDefault(t) {
		t.Errorf("a choice that is not there, from the SYN: %+v", f)
	}
	choose(t, l, reno)
	becomes(t, c, "reno")
	if f = flowOf(t, l, c, func(f Flow) bool { return f.Congestion == "reno" }); f.CongestionErrno != 0 {
		t.Errorf("a choice that is there again: %+v", f)
	}
	// A renewal is a change, once, and begins with slow start, unless a loss has ended that already.
	seen := false
	for i := 0; i < 2 || !seen && i < 10; i++ {
		option(t, c, func(fd int) (struct{}, error) {
			return struct{}{}, unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic")
		})
		choose(t, l, reno)
		stays(t, l, c, "cubic")
		reno.Renewals++
		choose(t, l, reno)
		becomes(t, c, "reno")
		f = flowOf(t, l, c, func(f Flow) bool { return f.Congestion == "reno" })
		seen = seen || f.SsthreshPackets == 0
	}
	if f.CongestionErrno != 0 || !seen {
		t.Errorf("after a renewal: %+v", f)
	}
	transfer(t, c, 1<<20)
}

// kernelDefault is what a socket has that nobody touches.
func kernelDefault(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func choiceOfAccepted(t *testing.T, s site, b netip.Addr) {
	l := loadAt(t, s, autoRules(b)...)
	choose(t, l, Choice{Prefix: pathOf(b), Congestion: "reno"})
	a := s.A4
	if b.Is6() {
		a = s.A6
	}
	c := acceptAt(t, s, a, 7100)
	if f := flowOf(t, l, c, established); congestionOf(t, c) != "reno" || !f.Auto || !f.Passive {
		t.Errorf("accepted: %+v", f)
	}
	choose(t, l, Choice{Prefix: pathOf(b), Congestion: "cubic"})
	becomes(t, c, "cubic")
	transfer(t, c, 1<<20)
}

// A leg has its own choice, that of the path to its peer, from when it is taken into use.
func TestChoiceOfLeg(t *testing.T) {
	inside(t, lan, func(t *testing.T, s site) {
		for _, b := range s.dests() {
			t.Run(pathOf(b).String(), func(t *testing.T) { choiceOfLeg(t, s, b) })
		}
	}, nil)
}

func choiceOfLeg(t *testing.T, s site, b netip.Addr) {
	l := loadAt(t, s, policy.Rule{ID: 1, Name: "dedup", Remote: allOf(b), Congestion: "cubic", Auto: true, PeerID: 4, PeerName: "b"})
	choose(t, l, Choice{Prefix: pathOf(b), Congestion: "no-such-thing"}, Choice{Prefix: pathOf(b), PeerID: 4, Congestion: "reno"})
	var cookie uint64
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) {
			cookie = cookieOf(t, int(fd))
			if err := l.Own(cookie, 0, true); err != nil {
				t.Error(err)
			}
		})
	}}
	d.SetMultipathTCP(false)
	conn, err := d.DialContext(t.Context(), "tcp", netip.AddrPortFrom(b, sinkPort).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); l.Disown(cookie) })
	c := conn.(*net.TCPConn)
	before := congestionOf(t, c)
	stays(t, l, c, before)
	if f := flowOf(t, l, c, established); f.Auto || f.Path.IsValid() || f.Kind != "leg" {
		t.Errorf("an idle leg: %+v", f)
	}
	option(t, c, func(fd int) (struct{}, error) { // as the engine does
		return struct{}{}, unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic")
	})
	if err := l.Own(cookie, 1, true); err != nil {
		t.Fatal(err)
	}
	becomes(t, c, "reno")
	f := flowOf(t, l, c, func(f Flow) bool { return f.Congestion == "reno" })
	if !f.Auto || f.Path != pathOf(b) || f.PeerID != 4 || f.CongestionErrno != 0 {
		t.Errorf("a leg in use: %+v", f)
	}
	choose(t, l, Choice{Prefix: pathOf(b), PeerID: 4, Congestion: "cubic"})
	becomes(t, c, "cubic")
	transfer(t, c, 1<<20)
}

// A flow whose congestion control is changed all the time arrives whole.
func TestChoiceChangesUnderFlow(t *testing.T) {
	inside(t, lan, func(t *testing.T, s site) {
		_, err := cc.Probe()
		testkit.NeedFeature(t, "struct-ops", err)
		l := loadAt(t, s)
		names := []string{"tl_illinois", "cubic", "tl_cubic", "reno"}
		if offered(t, "bbr") {
			names = []string{"bbr", "tl_illinois"}
		}
		l.SetCandidates(names)
		for _, b := range s.dests() {
			if err := l.Apply([]policy.Rule{{ID: 1, Name: "auto", Remote: allOf(b), Auto: true}}, nil); err != nil {
				t.Fatal(err)
			}
			t.Run(pathOf(b).String(), func(t *testing.T) { changesUnderFlow(t, l, b, names) })
		}
		if err := l.Apply(nil, nil); err != nil {
			t.Fatal(err)
		}
		if f := feature(t, l, "struct-ops"); strings.Contains(f.Detail, "tl_illinois") {
			t.Errorf("a candidate is held though no rule is auto any more: %+v", f)
		}
	}, nil)
}

func changesUnderFlow(t *testing.T, l *Loader, b netip.Addr, names []string) {
	c := dialAt(t, b, hashPort)
	data := make([]byte, testkit.Size(12<<20, 2<<20))
	rnd := rand.NewChaCha8([32]byte{1})
	rnd.Read(data)
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(data)
		sent <- err
	}()
	var had []string // what it has had, in order
	for i := 0; ; i++ {
		choose(t, l, Choice{Prefix: pathOf(b), Congestion: names[i%len(names)]})
		for range 10 {
			if now := congestionOf(t, c); len(had) == 0 || had[len(had)-1] != now {
				had = append(had, now)
			}
			time.Sleep(testkit.Wait(4 * time.Millisecond))
		}
		select {
		case err := <-sent:
			if err != nil {
				t.Fatal(err)
			}
			wantHash(t, c, data)
			t.Logf("%d choices, %d changes, last: %s", i+1, len(had)-1, strings.Join(had[max(0, len(had)-4):], " "))
			if len(had) < min(i, 4) {
				t.Errorf("of %d choices it followed %v", i+1, had)
			}
			return
		default:
		}
	}
}

func wantHash(t *testing.T, c *net.TCPConn, data []byte) {
	t.Helper()
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if want := sha256.Sum256(data); err != nil || !bytes.Equal(got, want[:]) {
		t.Errorf("other bytes arrived: %x, %v", got, err)
	}
}
