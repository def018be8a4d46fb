// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/internal/testkit"
)

func TestCloseLeavesNothing(t *testing.T) {
	l := newLab(t, Options{})
	// The shell's child outlives a kill of the shell: the cgroup must find it.
	p, err := l.A.Start(l.A.Command(context.Background(), "sh", "-c", "sleep 1000 & echo $!; wait"))
	if err != nil {
		t.Fatal(err)
	}
	for len(l.A.mustPids(t)) < 2 {
		time.Sleep(5 * time.Millisecond)
	}
	pids := l.A.mustPids(t)
	netns := l.A.NetnsPath()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if !gone(pid) {
			t.Errorf("process %d is still there", pid)
		}
	}
	for _, path := range []string{l.A.Cgroup, l.cgroup.dir, netns} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", path, err)
		}
	}
	if err := p.Wait(); err == nil {
		t.Error("the killed process ended well")
	}
	if _, err := l.A.Start(l.A.Command(context.Background(), "true")); !errors.Is(err, ErrClosed) {
		t.Errorf("a start after Close gave %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func (n *Namespace) mustPids(t *testing.T) []int {
	t.Helper()
	return (&cgroup{dir: n.Cgroup}).pids()
}

func gone(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, state, _ := strings.Cut(string(b), ") ")
	return strings.HasPrefix(state, "Z")
}

// ownLab is the other process of TestKilledOwner.
func ownLab() {
	l, err := New(Options{NoIPv6: true})
	if err == nil {
		var p *Process
		if p, err = l.B.Start(exec.Command("sleep", "1000")); err == nil {
			fmt.Println(p.Process.Pid, l.cgroup.dir)
			select {}
		}
	}
	fmt.Println(err)
	os.Exit(1)
}

func TestKilledOwner(t *testing.T) {
	testkit.NeedRoot(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	owner := exec.Command(exe)
	owner.Env = append(os.Environ(), ownerEnv+"=1")
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	first, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
	pid, err := strconv.Atoi(first)
	_ = owner.Process.Signal(unix.SIGKILL)
	_ = owner.Wait()
	if err != nil {
		t.Fatalf("the owner said %q", line)
	}
	for deadline := time.Now().Add(testkit.Wait(5 * time.Second)); !gone(pid) && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	if !gone(pid) {
		t.Errorf("child %d outlives its owner", pid)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Fatal(err)
	}
	newLab(t, Options{})
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the next lab left the dead one's cgroup: %v", err)
	}
}
