// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// insideChild is the environment of a test that runs itself again as a child.
const insideChild = "TRUNKLINE_TEST_HISTORY"

// child runs the calling test in a process of its own, which is given dir.
func child(t *testing.T, dir string, flags uintptr) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), insideChild+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, Pdeathsig: syscall.SIGKILL}
	if flags != 0 && os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return cmd
}

// TestKill kills a process that has both ends, in the middle, again and again: whatever was acknowledged is known, and right.
func TestKill(t *testing.T) {
	const size = 70_001
	if dir := os.Getenv(insideChild); dir != "" {
		e := killable(t, dir)
		for seed := uint64(len(e.senders().Group("g").held.live())); ; seed++ {
			group := []string{"g", "h"}[seed/8%2]
			head := e.senders().Group(group).Stats().Head
			if pos := e.send(group, noise(size, head)); pos != 0 {
				fmt.Printf("acknowledged %s %d %d\n", group, pos, head)
			}
		}
	}
	runtime.LockOSThread() // Pdeathsig is about the thread
	defer runtime.UnlockOSThread()
	dir := t.TempDir()
	for round := range 6 {
		cmd := child(t, dir, 0)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		type block struct {
			group     string
			pos, seed uint64
		}
		var all []block
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var b block
			if n, _ := fmt.Sscanf(lines.Text(), "acknowledged %s %d %d", &b.group, &b.pos, &b.seed); n == 3 {
				all = append(all, b)
			}
			if len(all) == 40+60*round {
				cmd.Process.Kill()
			}
		}
		cmd.Wait()
		if len(all) < 40+60*round {
			t.Fatalf("the child ended after %d blocks", len(all))
		}
		e := killable(t, dir)
		e.agree()
		known := 0
		for _, b := range all {
			g := e.senders().Group(b.group)
			st := g.Stats()
			ok := e.known(b.group, b.pos, noise(size, b.seed))
			if ok {
				known++
			}
			if in := st.Head < uint64(st.BoundBytes) || b.pos >= st.Head-uint64(st.BoundBytes); in && !ok && st.HeldBytes >= st.BoundBytes/2 {
				// Both groups share the bound, so the older half of one may have made room for the other.
				if b.pos > st.Head-uint64(st.HeldBytes)/2 {
					t.Errorf("round %d: block %d of %s, head %d, is not known", round, b.pos, b.group, st.Head)
				}
			}
		}
		if known < 30 {
			t.Errorf("round %d: %d of %d blocks are known\n%s", round, known, len(all), e.logs.String())
		}
		if strings.Contains(e.logs.String(), "damaged") {
			t.Errorf("round %d:\n%s", round, e.logs.String())
		}
		e.near.Close()
		e.far.Close()
	}
}

func killable(t *testing.T, dir string) *ends {
	e := &ends{t: t}
	o := Options{MemoryBytes: 8 << 20, DiskBytes: 24 << 20}
	e.nearOpt, e.farOpt = o, o
	e.nearOpt.Directory, e.farOpt.Directory = filepath.Join(dir, "near"), filepath.Join(dir, "far")
	e.openNear()
	e.openFar()
	e.agree()
	return e
}

// TestFullDisk has less room on the disk than the configuration says: history goes on within it, and says so.
func TestFullDisk(t *testing.T) {
	dir := os.Getenv(insideChild)
	if dir == "" {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		out, err := child(t, t.TempDir(), syscall.CLONE_NEWNS).CombinedOutput()
		if strings.Contains(string(out), "--- SKIP") {
			t.Skip(string(out))
		}
		if err != nil {
			if !strings.Contains(string(out), "=== RUN") {
				t.Skipf("no mount namespace of its own: %v %s", err, out)
			}
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Skip("cannot keep mounts to itself:", err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=24m"); err != nil {
		t.Skip("cannot mount:", err)
	}
	e := &ends{t: t}
	e.nearOpt = Options{MemoryBytes: 64 << 20, Directory: filepath.Join(dir, "near"), DiskBytes: 64 << 20}
	e.farOpt = Options{MemoryBytes: 64 << 20}
	e.openNear()
	e.openFar()
	e.agree()
	recorded := 0
	var last uint64
	for i := range uint64(300) { // 60 MB
		if last = e.send("g", noise(200_000, i)); last != 0 {
			recorded++
		}
	}
	if recorded < 290 {
		t.Errorf("%d of 300 blocks were recorded", recorded)
	}
	if last == 0 || !e.known("g", last, noise(200_000, 299)) {
		t.Error("the last block is not known")
	}
	u := e.near.Usage()
	if len(u.Problems) != 1 || !strings.Contains(u.Problems[0], "no space left") || u.DiskBytes > 24<<20 {
		t.Errorf("%+v", u)
	}
	if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 24<<20), 0o600); err == nil {
		t.Error("there was room left")
	}
	// Not even its small files can be written anew: it goes on, and what stays of it is not taken for it later.
	for i := range uint64(3 * minChanges / 2) {
		e.send("g", noise(64, i))
	}
	kill(e.near)
	e.openNear()
	e.agree()
	e.known("g", last, noise(200_000, 299))
	e.near.Close()
}

// TestCutOff has somebody cut the files off under a running log. The faults end the log, and nothing else.
func TestCutOff(t *testing.T) {
	e := newEnds(t, 16<<20, 16<<20)
	data := noise(1<<20, 4)
	pos := e.send("g", data)
	for _, dir := range []string{e.nearOpt.Directory, e.farOpt.Directory} {
		for _, file := range []string{ringFile, indexFile} {
			found, _ := filepath.Glob(filepath.Join(dir, "*", "*", file))
			for _, path := range found {
				if err := os.Truncate(path, 0); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	g := e.senders().Group("g")
	l := g.Leg()
	p := l.Begin()
	if n := g.Forward(pos, data); n != 0 {
		t.Errorf("%d bytes compare equal with what is gone", n)
	}
	g.Lookup([]Sample{{Hash: 1}}, 0, nil)
	l.Done()
	r := e.receivers().Open("g")
	if err := r.Read(p.Generation, pos, data); err == nil {
		t.Error("what is gone was read")
	}
	l.Begin()
	if _, ok := l.Record(data); ok {
		t.Error("a lost log records")
	}
	l.Done()
	r.Write(p.Generation, pos+1<<20, data)
	r.Close()
	l.Close()
	for _, s := range []*Store{e.near, e.far} {
		if u := s.Usage(); len(u.Problems) != 1 {
			t.Errorf("%+v", u)
		}
	}
	if h := e.send("h", data); h == 0 || !e.known("h", h, data) {
		t.Error("another group is lost, too")
	}
	e.near.Close()
	e.far.Close()
	e.openNear()
	e.openFar()
	e.agree()
	if again := e.send("g", data); again == 0 || !e.known("g", again, data) {
		t.Error("after a restart nothing is recorded")
	}
}

// BenchmarkStart opens a store that holds 10 GiB.
func BenchmarkStart(b *testing.B) {
	e := &ends{t: b}
	e.nearOpt = Options{MemoryBytes: 256 << 20, DiskBytes: 11 << 30, Directory: filepath.Join(b.TempDir(), "near")}
	e.openNear()
	// A sparse file will do: only what is known of it counts. The index is as large as it gets.
	g := e.senders().Group("g")
	g.mu.Lock()
	g.head = 1 + 10<<30
	g.held.add(1, g.head)
	g.index.used = len(g.index.entries)
	for int(g.index.mask)+1 < g.index.most {
		g.index.double()
	}
	g.persist()
	g.mu.Unlock()
	kill(e.near)
	e.openNear()
	if st := e.senders().Group("g").Stats(); st.HeldBytes < 10<<30 {
		b.Fatalf("%+v", st)
	}
	e.near.Close()
	for b.Loop() {
		e.openNear()
		b.StopTimer()
		e.near.Close()
		b.StartTimer()
	}
}
