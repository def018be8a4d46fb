// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"testing"
)

func TestProbe(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	target := l.Addr().(*net.TCPAddr).AddrPort()
	var mu sync.Mutex
	own := map[uint64]bool{}
	p := TCPProber{
		Own:    func(c uint64) error { mu.Lock(); defer mu.Unlock(); own[c] = true; return nil },
		Disown: func(c uint64) { mu.Lock(); defer mu.Unlock(); delete(own, c) },
	}
	for _, what := range []string{"a listener", "a refusal"} {
		rtt, err := p.Probe(context.Background(), target)
		if err != nil || rtt <= 0 {
			t.Errorf("%s: %s, %v", what, rtt, err)
		}
		if len(own) != 0 {
			t.Errorf("%s: sockets stay entered as own: %v", what, own)
		}
		l.Close()
	}
	p.Own = func(uint64) error { return errors.New("no room") }
	if _, err := p.Probe(context.Background(), target); err == nil {
		t.Error("a socket that would be steered was used")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := p.Probe(ctx, netip.MustParseAddrPort("127.0.0.1:1")); err == nil {
		t.Error("a probe that was cut short has measured something")
	}
}
