// SPDX-License-Identifier: Apache-2.0

package vmtest

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/vmtest/lab"
)

// Of an agent that is killed the hooks go first and the listener last, some grace periods later: who was steered at the
// last moment is still taken in. Without this order TestRestartsRefuseNobody would fail too, but once in many runs.
func TestTheListenerOutlivesTheHooks(t *testing.T) {
	w := newWorld(t, setup{})
	dir, err := os.Open(w.lab.A.Cgroup)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	var longest time.Duration
	for range 5 {
		addr, err := listening(w.lab.A)
		if err != nil {
			t.Fatal(err)
		}
		type end struct {
			gap time.Duration
			err error
		}
		ended := make(chan end, 1)
		go func() {
			var e end
			e.err = w.lab.A.Do(func() (err error) { e.gap, err = watchEnd(dir, addr); return err })
			ended <- e
		}()
		w.a.kill()
		e := <-ended
		if e.err != nil {
			t.Fatal(e.err)
		}
		t.Logf("the listener was there %v longer than the hooks", e.gap)
		longest = max(longest, e.gap)
		w.a.start()
	}
	if longest == 0 {
		t.Error("at no end of five was the listener seen without the hooks")
	}
}

// watchEnd looks until an agent's listener is gone, and says for how long it was there without the hooks at the cgroup.
func watchEnd(cgroup *os.File, listener netip.AddrPort) (gap time.Duration, err error) {
	hooked := func() (bool, error) {
		r, err := link.QueryPrograms(link.QueryOptions{Target: int(cgroup.Fd()), Attach: ebpf.AttachCGroupInet4Connect})
		if err != nil {
			return false, fmt.Errorf("asking for the programs at %s: %w", cgroup.Name(), err)
		}
		return len(r.Programs) > 0, nil
	}
	var gone time.Time
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		if is, err := hooked(); err != nil {
			return 0, err
		} else if !is && gone.IsZero() {
			gone = time.Now()
		}
		c, err := net.Dial("tcp", listener.String())
		if err == nil {
			c.Close()
			if !gone.IsZero() {
				gap = time.Since(gone)
			}
			continue
		}
		if !errors.Is(err, unix.ECONNREFUSED) { // the agent resets what nobody steered, at times before connect() returns
			continue
		}
		is, err := hooked()
		if is {
			err = errors.New("the listener is gone, and the hooks are there")
		}
		return gap, err
	}
	return 0, fmt.Errorf("the listener at %v did not go", listener)
}

// listening finds where an agent waits for steered IPv4 connections.
func listening(site *lab.Site) (addr netip.AddrPort, err error) {
	err = site.Do(func() error {
		f, err := os.Open("/proc/thread-self/net/tcp")
		if err != nil {
			return err
		}
		defer f.Close()
		for s := bufio.NewScanner(f); s.Scan(); {
			// sl local_address rem_address st, as hexadecimal numbers in the host's order
			var port uint16
			fields := strings.Fields(s.Text())
			if fields[3] != "0A" { // LISTEN
				continue
			}
			if _, err := fmt.Sscanf(fields[1], "0100007F:%X", &port); err == nil {
				addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)
				return nil
			}
		}
		return errors.New("nobody listens on 127.0.0.1")
	})
	return addr, err
}
