// SPDX-License-Identifier: Apache-2.0

package outlive

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/trunkline/trunkline/internal/testkit"
)

// A listener takes connections until the hold on it is released, whoever has closed it before.
func TestAListenerIsOpenUntilReleased(t *testing.T) {
	testkit.NeedRoot(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	h, err := Keep([]syscall.RawConn{raw})
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatalf("with a hold on the listener: %v", err)
	}
	c.Close()
	began := time.Now()
	h.Release()
	t.Logf("released in %v", time.Since(began))
	if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
		c.Close()
		t.Error("the listener is open after the release")
	}
}
