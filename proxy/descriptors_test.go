// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"io"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/internal/testkit"
)

// TestOutOfDescriptors: who comes when the agent has no descriptor left is reset, does not wait, and soon nobody is sent there
// any more.
func TestOutOfDescriptors(t *testing.T) {
	w := newLoneWorld(t)
	dst := serve(t, serverAddr, echo)
	exchange := func(what string) {
		c := w.steer(dst)
		c.Write([]byte(what))
		c.CloseWrite()
		if b, err := io.ReadAll(c); err != nil || string(b) != what {
			t.Errorf("%q gave %q, %v", what, b, err)
		}
	}
	exchange("before") // the server accepts by now, and does not find itself out of descriptors
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	few := limit
	few.Cur = min(limit.Cur, 256)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	var taken []int
	give := func() {
		for _, fd := range taken {
			unix.Close(fd)
		}
		taken = nil
	}
	t.Cleanup(func() {
		give()
		unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	})
	for {
		fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			break
		}
		taken = append(taken, fd)
	}
	for range 3 {
		last := len(taken) - 1
		unix.Close(taken[last])
		taken = taken[:last]
		c, err := w.trySteer(dst)            // with the one descriptor there is
		if errors.Is(err, unix.ECONNRESET) { // before connect was over
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		c.SetReadDeadline(time.Now().Add(testkit.Wait(20 * time.Second)))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("a client that nobody can accept saw %v, want a reset", err)
		}
		defer c.Close()
	}
	give()
	time.Sleep(testkit.Wait(200 * time.Millisecond)) // the last turning away may not be over
	waitFor(t, "alive", 20*time.Second, w.near.Alive)
	exchange("after")
}
