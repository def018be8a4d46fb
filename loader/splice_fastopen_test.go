// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"io"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/loader/internal/testenv"
	"github.com/trunkline/trunkline/loader/policy"
)

// TestSpliceFastOpen: data that goes with connect() is in TCP's queue before the socket is in the map. Redirected bytes
// would overtake it.
func TestSpliceFastOpen(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	testenv.NewWorld(t)
	w := newSteeredWorld(t, policy.SpliceForce)
	// Without a cookie the data waits for the handshake inside sendto; with 4 the SYN carries it unasked; with 0x400 every
	// listener takes it.
	to := &unix.SockaddrInet4{Port: 7, Addr: netip.MustParseAddr(testenv.Far4).As4()}
	ways := map[string]func(t *testing.T, fd int){
		"sendto": func(t *testing.T, fd int) {
			must(t, unix.Sendto(fd, []byte("first "), unix.MSG_FASTOPEN, to))
		},
		"write after connect": func(t *testing.T, fd int) {
			must(t, unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_FASTOPEN_CONNECT, 1))
			must(t, unix.Connect(fd, to))
			_, err := unix.Write(fd, []byte("first "))
			must(t, err)
		},
	}
	for _, sysctl := range []string{"1", "5", "1031"} {
		must(t, os.WriteFile("/proc/sys/net/ipv4/tcp_fastopen", []byte(sysctl), 0))
		for name, way := range ways {
			t.Run(name+", tcp_fastopen="+sysctl, func(t *testing.T) { w.testFastOpen(t, way) })
		}
	}
}

// testFastOpen: whatever became of the first message, all come in order, and none counts as redirected that followed one
// which was not.
func (w *steeredWorld) testFastOpen(t *testing.T, begin func(*testing.T, int)) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	must(t, err)
	before := w.counts(t)
	begin(t, fd)
	first := w.counts(t).Redirected - before.Redirected
	p := w.take(t, w.ln4, connFromFD(t, fd))
	write(t, p.app, "second ")
	write(t, p.app, "third")
	must(t, p.app.CloseWrite())
	got, err := io.ReadAll(p.eng)
	if err != nil || string(got) != "first second third" {
		t.Errorf("%q came (%v)", got, err)
	}
	all := w.counts(t).Redirected - before.Redirected
	t.Logf("the first message redirected: %d, all: %d", first, all)
	if first == 0 && all > 0 {
		t.Errorf("%d messages overtake the first", all)
	}
}
