// SPDX-License-Identifier: Apache-2.0

package window

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/cmd/internal/config"
	"github.com/trunkline/trunkline/cmd/internal/labagent"
	"github.com/trunkline/trunkline/internal/testkit"
)

// Streams over the loopback: both ends tell of all of them, and of what they held.
func TestTransfer(t *testing.T) {
	o := order{Address: netip.MustParseAddr("127.81.85.1"), Port: port, Streams: 3, Time: 300 * time.Millisecond}
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	out, w := io.Pipe()
	hold, release := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- ReceiveMain([]string{string(text)}, hold, w) }()
	lines := bufio.NewReader(out)
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err, <-ended)
	}
	var told bytes.Buffer
	told.Grow(1 << 16)
	if err := SendMain([]string{string(text)}, strings.NewReader("go\n"), &told); err != nil {
		t.Fatal(err)
	}
	var s sent
	rest, ok := bytes.CutPrefix(told.Bytes(), []byte("ready\n"))
	if err := json.Unmarshal(rest, &s); err != nil || !ok || len(s.Streams) != 3 || s.StartNs == 0 || s.Streams[0].Congestion == "" {
		t.Errorf("%v: the sender said %s", err, &told)
	}
	var r received
	if err := json.NewDecoder(lines).Decode(&r); err != nil {
		t.Fatal(err)
	}
	if err := release.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	seen := map[int]bool{}
	for _, st := range r.Streams {
		seen[st.Number] = true
		if bytesIn(st.Bins, o.Time) == 0 || len(st.Bins) > int(o.Time/binTime) {
			t.Errorf("stream %d: %v", st.Number, st.Bins)
		}
	}
	if len(seen) != 3 || peakTogether(s.Held, r.Held) == 0 {
		t.Errorf("streams %v; held %v and %v", seen, s.Held, r.Held)
	}
}

func TestNobodyListens(t *testing.T) {
	text, err := json.Marshal(order{Address: netip.MustParseAddr("127.81.85.2"), Port: port, Streams: 1, Time: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	err = SendMain([]string{string(text)}, strings.NewReader("go\n"), io.Discard)
	if err == nil || !strings.Contains(err.Error(), "connecting to 127.81.85.2: connection refused") {
		t.Errorf("got %v", err)
	}
}

// A buffer that the host's maximum would cut short is an error that names the remedy.
func TestBufferTooLarge(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := setBuffer(fd, unix.SO_RCVBUF, 100_000, rmemMax); err != nil {
		t.Error(err)
	}
	if err := setBuffer(fd, unix.SO_RCVBUF, 1<<30, rmemMax); err == nil || !strings.HasSuffix(err.Error(), "raise net.core.rmem_max") {
		t.Errorf("got %v", err)
	}
}

// Maxima that were raised are lowered again, and what a killed bench leaves is where the next one's cleanup looks.
func TestMaxima(t *testing.T) {
	testkit.NeedRoot(t)
	read := func() string {
		b, err := os.ReadFile("/proc/sys/net/core/wmem_max")
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b))
	}
	before, dir := read(), t.TempDir()
	m, err := openMaxima(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.raise(1000); err != nil || len(m.raised) != 0 {
		t.Errorf("less than there is raised %v: %v", m.raised, err)
	}
	const high = 1<<30 + 4096
	if err := m.raise(high); err != nil || read() != "1073745920" {
		t.Errorf("wmem_max is %s: %v", read(), err)
	}
	located, err := config.Locate(filepath.Join(dir, "maxima", labagent.ConfigName))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(located.Ledger()); err != nil {
		t.Error(err)
	}
	if err := m.close(); err != nil {
		t.Error(err)
	}
	if read() != before {
		t.Errorf("wmem_max is %s, was %s", read(), before)
	}
}
