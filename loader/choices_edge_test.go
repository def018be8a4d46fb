// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/trunkline/trunkline/bpf"
	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/loader/internal/testenv"
	"github.com/trunkline/trunkline/loader/policy"
)

// This host and what is on-link are no paths: flows there keep the kernel's default.
func TestChoiceIsNotForWhatIsNear(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	w := testenv.NewWorld(t)
	if kernelDefault(t) == "reno" {
		t.Fatal("the kernel's default is what the test chooses")
	}
	all4, all6 := netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")
	l := loadAt(t, site{Cgroup: testenv.Cgroup()},
		policy.Rule{ID: 1, Name: "four", Remote: all4, Congestion: "reno", Auto: true},
		policy.Rule{ID: 2, Name: "six", Remote: all6, Congestion: "reno", Auto: true})
	for _, near := range []bool{true, false} {
		addrs := []string{"127.0.0.1", "::1", testenv.NearLink4, testenv.NearLink6, testenv.RouterLink4, testenv.RouterLink6}
		if !near {
			addrs = []string{testenv.Far4, testenv.Far6}
		}
		for _, text := range addrs {
			a := netip.MustParseAddr(text)
			t.Run(text, func(t *testing.T) {
				if a.Is6() {
					testkit.NeedIPv6(t)
				}
				choiceAt(t, l, w, a, near)
			})
		}
	}
}

func choiceAt(t *testing.T, l *Loader, w *testenv.World, a netip.Addr, near bool) {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	var ln net.Listener
	var err error
	listen := func() { ln, err = lc.Listen(t.Context(), "tcp", netip.AddrPortFrom(a, testPort).String()) }
	if a.IsLoopback() || a == netip.MustParseAddr(testenv.NearLink4) || a == netip.MustParseAddr(testenv.NearLink6) {
		listen()
	} else {
		w.InFar(listen)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		if c, err := ln.Accept(); err == nil {
			sink(c)
			c.Close()
		}
	}()
	choose(t, l, Choice{Prefix: pathOf(a), Congestion: "reno"})
	c := dialAt(t, a, testPort)
	want := "reno"
	if near {
		want = kernelDefault(t)
	}
	sendOnly(t, c, 200_000)
	f := flowOf(t, l, c, established)
	if got := congestionOf(t, c); got != want || f.Auto == near || f.CongestionErrno != 0 {
		t.Errorf("it has %s, want %s: %+v", got, want, f)
	}
	transfer(t, c, 0)
}

func TestChoicesThatCannotBe(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	l := loadAt(t, site{Cgroup: testenv.Cgroup()})
	p := netip.MustParsePrefix("10.2.0.0/24")
	good := Choice{Prefix: p, Congestion: "reno"}
	choose(t, l, good)
	before := readChoices(t, l)
	many := make([]Choice, l.maps["tl_choice"].MaxEntries()+1)
	for i := range many {
		many[i] = Choice{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{11, byte(i >> 8), byte(i)}), 24), Congestion: "reno"}
	}
	for name, c := range map[string]struct {
		choices []Choice
		want    string
	}{
		"no name":     {[]Choice{{Prefix: p}}, "1 to 15 characters"},
		"long name":   {[]Choice{{Prefix: p, Congestion: "tl_0123456789abc"}}, "1 to 15 characters"},
		"no prefix":   {[]Choice{{Congestion: "reno"}}, "needs a prefix"},
		"twice":       {[]Choice{good, {Prefix: netip.MustParsePrefix("10.2.0.7/24"), Congestion: "cubic"}}, "two choices"},
		"beyond room": {many, "holds 8192"},
	} {
		if err := l.SetChoices(c.choices); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if after := readChoices(t, l); len(after) != 1 || after[bpf.PathKeyFrom(p, 0)] != before[bpf.PathKeyFrom(p, 0)] {
		t.Errorf("the choices changed: %+v", after)
	}
	choose(t, l, many[1:]...)
	if n := len(readChoices(t, l)); n != len(many)-1 {
		t.Errorf("%d choices in the kernel, want %d", n, len(many)-1)
	}
	choose(t, l, good)
	again := readChoices(t, l)
	if c := again[bpf.PathKeyFrom(p, 0)]; len(again) != 1 || c.Version <= uint32(len(many)-1) || bpf.CCName(c.Congestion) != "reno" {
		t.Errorf("chosen again: %+v", again)
	}
}

func readChoices(t *testing.T, l *Loader) map[bpf.PathKey]bpf.Choice {
	t.Helper()
	m, err := snapshot[bpf.PathKey, bpf.Choice](l.maps["tl_choice"])
	if err != nil {
		t.Fatal(err)
	}
	return m
}
