// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"bufio"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/internal/outlive"
	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/loader/internal/testenv"
)

const killedEnv = "TL_TEST_KILLED_AGENT"

// A killed agent refuses nobody: while it dies, connections go to it, or to the far server, but none is turned away.
func TestKilledAgentRefusesNobody(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	if os.Getenv(killedEnv) != "" {
		e := &steerEnv{t: t}
		e.load(nil)
		e.outlive()
		os.Stdout.WriteString("ready\n")
		select {}
	}
	e := &steerEnv{t: t, world: testenv.NewWorld(t)}
	e.serveFar()
	for range testkit.Count(10, 3) {
		agent, steered := startAgent(t), uint64(0)
		if got := e.dial4().line(t); !strings.HasPrefix(got, "engine ") {
			t.Fatalf("reached %q, want the engine", got)
		}
		var stop atomic.Bool
		var refused, direct atomic.Uint64
		done := make(chan struct{})
		go func() {
			defer close(done)
			for !stop.Load() {
				switch err := knock(&direct); {
				case err == nil:
					steered++
				case !errors.Is(err, unix.ECONNRESET):
					refused.Add(1)
					t.Errorf("connect: %v", err)
				}
			}
		}()
		time.Sleep(testkit.Wait(50 * time.Millisecond))
		if err := agent.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = agent.Wait() // "signal: killed"
		time.Sleep(testkit.Wait(20 * time.Millisecond))
		stop.Store(true)
		<-done
		if direct.Load() == 0 {
			t.Error("no connection went direct after the kill")
		}
		t.Logf("%d connections, %d of them direct, %d refused", steered, direct.Load(), refused.Load())
	}
}

// outlive has the stand-in's listeners be the last of a killed process, as the engine's are.
func (e *steerEnv) outlive() {
	e.t.Helper()
	var sockets []syscall.RawConn
	for _, l := range []net.Listener{e.ln4, e.ln6} {
		raw, err := l.(*net.TCPListener).SyscallConn()
		if err != nil {
			e.t.Fatal(err)
		}
		sockets = append(sockets, raw)
	}
	hold, err := outlive.Keep(sockets)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(hold.Release)
}

// A connection beyond those that may wait for the engine's accept would be dropped, and refused if the engine dies before
// its SYN comes again.
func TestNoMoreAreSteeredThanMayWait(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	e := newSteerEnv(t, nil)
	if n := e.l.maps["tl_orig"].MaxEntries(); n > backlog() {
		t.Errorf("%d connections are steered that the engine has not accepted, and %d may wait", n, backlog())
	}
}

// startAgent starts this test again as the agent that is to be killed.
func startAgent(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	// Killed, it removes nothing: what it makes lies in a directory of the test that kills it.
	cmd.Env = append(os.Environ(), killedEnv+"=1", "TMPDIR="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	s := bufio.NewScanner(out)
	for s.Scan() {
		if s.Text() == "ready" {
			return cmd
		}
		t.Log(s.Text())
	}
	t.Fatal("the agent did not start")
	return nil
}

// knock connects and closes, as fast as it can.
func knock(direct *atomic.Uint64) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		return err
	}
	if err := unix.Connect(fd, sockaddr(unix.AF_INET, testenv.Far4, testPort)); err != nil {
		return err
	}
	buf := make([]byte, 10)
	n, err := read(fd, buf)
	if err == nil && strings.HasPrefix(string(buf[:n]), "direct") {
		direct.Add(1)
	}
	return err
}
