// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trunkline/trunkline/internal/testkit"
)

// fetch gets all that a server sends, and returns what that took on the wire, as the near end sees it.
func (w *world) fetch(dst netip.AddrPort, want []byte) int64 {
	w.t.Helper()
	before := w.near.Peers()[0].WireReceived
	c := w.steer(dst)
	c.SetDeadline(time.Now().Add(testkit.Wait(60 * time.Second)))
	if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, want) {
		w.t.Fatalf("got %d bytes of %d, %v", len(got), len(want), err)
	}
	return w.near.Peers()[0].WireReceived - before
}

// give is a server that sends data.
func give(t *testing.T, data []byte) netip.AddrPort {
	return serve(t, serverAddr, func(c *net.TCPConn) { c.Write(data); c.CloseWrite(); io.Copy(io.Discard, c) })
}

// again starts an agent that was closed, as it was.
func again(t *testing.T, name string, old *agent) *agent {
	a := newAgent(t, name, Config{Identity: old.cfg.Identity, Listen: old.cfg.Listen, Peers: old.cfg.Peers, Rules: old.cfg.Rules,
		HistoryBytes: old.cfg.HistoryBytes, HistoryDisk: old.cfg.HistoryDisk, HistoryDir: old.cfg.HistoryDir})
	a.run()
	return a
}

// TestHistoryOverRestart: on disk, history is of use at once after either end, or both, started anew.
func TestHistoryOverRestart(t *testing.T) {
	w := newWorld(t, func(near, far *Config) {
		near.HistoryDir, far.HistoryDir = filepath.Join(t.TempDir(), "near"), filepath.Join(t.TempDir(), "far")
		far.Listen = farAddr + ":4821" // the same after a restart
	})
	data := mixed(4<<20, 11)
	dst := give(t, data)
	w.fetch(dst, data)
	for _, c := range []struct {
		name      string
		near, far bool
	}{{"near", true, false}, {"far", false, true}, {"both", true, true}} {
		before := w.near.Peers()[0].Since
		if c.near {
			w.near.close()
		}
		if c.far {
			w.far.close()
			w.far = again(t, "far again", w.far)
		}
		if c.near {
			w.near = again(t, "near again", w.near)
		} else {
			waitFor(t, "peer down", 20*time.Second, func() bool { return w.near.Peers()[0].Since != before })
		}
		w.waitUp()
		if wire := w.fetch(dst, data); wire > int64(len(data)/100) {
			t.Errorf("after a restart of %s: %d bytes on the wire for %d", c.name, wire, len(data))
		}
	}
	asked := strings.Count(w.near.logs.String()+w.far.logs.String(), "asking the peer")
	if asked > 0 {
		t.Errorf("asked for what is not held %d times", asked)
	}
}

// TestPurgedHistory: what an end forgets while flows go on is sent again, and nothing is referred to that is gone.
func TestPurgedHistory(t *testing.T) {
	w := newWorld(t, nil)
	data := mixed(2<<20, 12)
	dst := give(t, data)
	cold := w.fetch(dst, data)
	if n, _, err := w.near.PurgeHistory("far", "rule"); n == 0 || err != nil {
		t.Fatalf("purged %d, %v", n, err)
	}
	if _, _, err := w.near.PurgeHistory("nobody", ""); err == nil {
		t.Error("the history of nobody was purged")
	}
	waitFor(t, "the far end knowing", 20*time.Second, func() bool {
		_, all := w.far.Histories()
		for _, h := range all {
			if h.Sent && h.KnownBytes > 0 {
				return false
			}
		}
		return len(all) > 0
	})
	if wire := w.fetch(dst, data); wire < cold/2 {
		t.Errorf("%d bytes on the wire after the purge, %d before there was anything", wire, cold)
	}
	if wire := w.fetch(dst, data); wire > int64(len(data)/100) {
		t.Errorf("%d bytes on the wire when it is there again", wire)
	}
	if strings.Contains(w.near.logs.String(), "asking the peer") {
		t.Error("the far end referred to what it was told is gone")
	}
}

// killedFar is the environment of the child that is a far agent.
const killedFar = "TRUNKLINE_TEST_FAR"

// TestKilledEnd kills the far agent in the middle of a flow. Started anew, it has its history, and so has the near one.
func TestKilledEnd(t *testing.T) {
	const listen = farAddr + ":4822"
	if dir := os.Getenv(killedFar); dir != "" {
		id, err := LoadOrCreateIdentity(filepath.Join(dir, "key"))
		if err != nil {
			t.Fatal(err)
		}
		far := newAgent(t, "far", Config{Identity: id, Listen: listen, HistoryDir: filepath.Join(dir, "history"), Peers: []Peer{{
			ID: 1, Name: "near", Key: os.Getenv(killedFar + "_KEY"), Allow: []Allow{{Prefix: netip.MustParsePrefix(serverAddr + "/32")}}}}})
		far.run()
		fmt.Println("runs with", id.Fingerprint())
		select {}
	}
	runtime.LockOSThread() // Pdeathsig is about the thread
	defer runtime.UnlockOSThread()
	dir := t.TempDir()
	id, err := LoadOrCreateIdentity(filepath.Join(dir, "key"))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, near: newAgent(t, "near", Config{Identity: newTestIdentity(t), Listen: nearAddr + ":0", WarmLegs: -1,
		HistoryDir: filepath.Join(t.TempDir(), "near"),
		Rules:      []Rule{{ID: 7, Name: "rule", PeerID: 1}}, Peers: []Peer{{ID: 1, Name: "far", Address: listen, Key: id.Fingerprint()}}})}
	start := func() *exec.Cmd {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestKilledEnd$", "-test.v")
		cmd.Env = append(os.Environ(), killedFar+"="+dir, killedFar+"_KEY="+w.near.cfg.Identity.Fingerprint())
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for lines.Scan() && !strings.Contains(lines.Text(), "runs with") {
		}
		go io.Copy(io.Discard, out)
		return cmd
	}
	far := start()
	w.near.run()
	w.waitUp()
	data, other := mixed(4<<20, 13), mixed(16<<20, 14)
	dst, slow := give(t, data), give(t, other)
	w.fetch(dst, data)
	for range 2 {
		c := w.steer(slow)
		if _, err := io.ReadFull(c, make([]byte, 2<<20)); err != nil {
			t.Fatal(err)
		}
		far.Process.Kill()
		far.Wait()
		if n, err := io.Copy(io.Discard, c); err == nil && n+2<<20 < int64(len(other)) {
			t.Fatal("a flow that was cut ended cleanly")
		}
		waitFor(t, "peer down", 20*time.Second, func() bool { return !w.near.kernel.isUp(1) })
		far = start()
		w.waitUp()
		if wire := w.fetch(dst, data); wire > int64(len(data)/100) {
			t.Errorf("after a kill: %d bytes on the wire for %d", wire, len(data))
		}
		if got := w.fetch(slow, other); got > int64(len(other)) {
			t.Errorf("%d bytes on the wire for %d", got, len(other))
		}
	}
	far.Process.Kill()
	far.Wait()
}
