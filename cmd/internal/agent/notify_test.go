// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/trunkline/trunkline/internal/testkit"
)

// systemd hears READY with a line of health, and the watchdog's signs of life.
func TestNotify(t *testing.T) {
	h := newHost(t)
	path := filepath.Join(h.dir, "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", strconv.Itoa(int(300*time.Millisecond/time.Microsecond)))
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	_, stop := h.run(h.write("rules: [{remote: 203.0.113.0/24}]\n"))
	if got := receive(t, l); !strings.HasPrefix(got, "READY=1\nSTATUS=ok; rules: 1, peers up: 0 of 0") {
		t.Errorf("first %q", got)
	}
	if got := receive(t, l); !strings.HasPrefix(got, "WATCHDOG=1\n") {
		t.Errorf("then %q", got)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func receive(t *testing.T, l *net.UnixConn) string {
	t.Helper()
	buf := make([]byte, 4096)
	if err := l.SetReadDeadline(time.Now().Add(testkit.Wait(10 * time.Second))); err != nil {
		t.Fatal(err)
	}
	n, err := l.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return string(buf[:n])
}
