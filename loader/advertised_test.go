// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/loader/policy"
)

// capture is a socket that sees every IPv4 packet of this namespace.
func capture(t *testing.T) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(htons(unix.ETH_P_ALL)))
	if err != nil {
		t.Fatalf("opening a packet socket: %v", err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	wait := unix.NsecToTimeval(int64(200 * time.Millisecond))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		t.Fatal(err)
	}
	return fd
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// advertised returns the window that the first segment after its SYN carries, from a local port, in bytes.
func advertised(t *testing.T, fd int, port uint16) int {
	t.Helper()
	scale := -1
	b := make([]byte, 1<<16)
	for end := time.Now().Add(testkit.Wait(20 * time.Second)); time.Now().Before(end); {
		n, _, err := unix.Recvfrom(fd, b, 0)
		if err != nil {
			if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
				continue
			}
			t.Fatal(err)
		}
		p := b[:n]
		if n < 40 || p[0]>>4 != 4 || p[9] != unix.IPPROTO_TCP {
			continue
		}
		tcp := p[int(p[0]&15)*4:]
		if len(tcp) < 20 || binary.BigEndian.Uint16(tcp) != port {
			continue
		}
		if tcp[13]&2 != 0 {
			scale = scaleOf(tcp[20:min(len(tcp), int(tcp[12]>>4)*4)])
			continue
		}
		if scale >= 0 {
			return int(binary.BigEndian.Uint16(tcp[14:])) << scale
		}
	}
	t.Fatal("no segment was seen")
	return 0
}

// scaleOf finds the window scale among a SYN's options.
func scaleOf(options []byte) int {
	for len(options) > 1 {
		switch {
		case options[0] == 0:
			return 0
		case options[0] == 1:
			options = options[1:]
			continue
		case options[0] == 3 && len(options) > 2:
			return int(options[2])
		}
		options = options[min(len(options), max(int(options[1]), 2)):]
	}
	return 0
}

// W is on the wire with the first segment that can carry it, from either end, and long before the first flight could be through.
func TestAdvertisedWindow(t *testing.T) {
	inside(t, reservedPath, func(t *testing.T, s site) {
		l := loadAt(t, s, policy.Rule{ID: 1, Name: "path", Remote: full(s.B4), Window: policy.WindowReserved})
		r := reserved(s.B4, 40e6, 20*time.Millisecond)
		reserve(t, l, r)
		want := int(r.BDPBytes())
		if old() {
			want = 1 << 15 // before Linux 6.12 the first window of others' sockets ends at 64 KB, and grows from there
		}
		fd := capture(t)
		c := dialAt(t, s.B4, sinkPort)
		port := c.LocalAddr().(*net.TCPAddr).AddrPort().Port()
		if got := advertised(t, fd, port); got < want {
			t.Errorf("connecting: the first window is %d bytes, W is %d", got, want)
		}
		sendOnly(t, acceptAt(t, s, s.A4, 7300), 1)
		if got := advertised(t, fd, 7300); got < want {
			t.Errorf("accepting: the first window is %d bytes, W is %d", got, want)
		}
	}, nil)
}

// old says whether the kernel is from before 6.12.
func old() bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	var major, minor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor); err != nil {
		return false
	}
	return major < 6 || major == 6 && minor < 12
}
