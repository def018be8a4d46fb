// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var testKey = []byte("0123456789abcdef0123456789abcdef")

// ends are the two ends of a peering, each with a store of its own. Bytes go from near to far.
type ends struct {
	t         testing.TB
	near, far *Store
	nearOpt   Options
	farOpt    Options
	logs      bytes.Buffer
}

func newEnds(t testing.TB, memory, disk int64) *ends {
	e := &ends{t: t}
	log := slog.New(slog.NewTextHandler(&e.logs, nil))
	e.nearOpt = Options{MemoryBytes: memory, DiskBytes: disk, Log: log, SyncEvery: time.Hour}
	e.farOpt = e.nearOpt
	if disk > 0 {
		e.nearOpt.Directory, e.farOpt.Directory = filepath.Join(t.TempDir(), "near"), filepath.Join(t.TempDir(), "far")
	}
	e.openNear()
	e.openFar()
	e.agree()
	t.Cleanup(func() { e.near.Close(); e.far.Close() })
	return e
}

func (e *ends) open(o Options) *Store {
	e.t.Helper()
	s, err := Open(o)
	if err != nil {
		e.t.Fatal(err)
	}
	return s
}

func (e *ends) openNear() { e.near = e.open(e.nearOpt) }
func (e *ends) openFar()  { e.far = e.open(e.farOpt) }

func (e *ends) senders() *Senders {
	s, _ := e.near.Peer(testKey)
	return s
}

func (e *ends) receivers() *Receivers {
	_, r := e.far.Peer(testKey)
	return r
}

// agree does what agents do at hello.
func (e *ends) agree() {
	s, r := e.senders(), e.receivers()
	s.SetPeerEpoch(r.Epoch())
	s.SetPeerBound(r.Bound())
	named := map[string]bool{}
	for _, h := range r.Holds() {
		s.Hold(h)
		named[h.Group] = true
	}
	s.HoldOnly(named)
}

// send records a block at the near end, stores it at the far one, and acknowledges it. It returns its position, 0 if it went
// unrecorded.
func (e *ends) send(group string, data []byte) uint64 {
	g := e.senders().Group(group)
	r := e.receivers().Open(group)
	defer r.Close()
	l := g.Leg()
	defer l.Close()
	p := l.Begin()
	pos, ok := l.Record(data)
	l.Done()
	if !ok {
		l.Acknowledge(0, 0)
		return 0
	}
	g.Insert([]Sample{{Hash: uint64(pos) * 0x9e3779b97f4a7c15, At: 64}}, pos)
	r.Write(p.Generation, pos, data)
	l.Acknowledge(pos, len(data))
	for _, lack := range e.receivers().Lacks() {
		e.senders().Lack(lack)
	}
	return pos
}

// known tells whether the near end may refer to a block, and checks that both ends have its bytes then.
func (e *ends) known(group string, pos uint64, data []byte) bool {
	e.t.Helper()
	g := e.senders().Group(group)
	l := g.Leg()
	defer l.Close()
	p := l.Begin()
	defer l.Done()
	lo, hi, ok := l.Extent(pos)
	if !ok || pos < p.Low || lo > pos || hi < pos+uint64(len(data)) {
		return false
	}
	if n := g.Forward(pos, data); n != len(data) {
		e.t.Fatalf("the sender has other bytes at %d of %s: %d of %d", pos, group, n, len(data))
	}
	r := e.receivers().Open(group)
	defer r.Close()
	got := make([]byte, len(data))
	if err := r.Read(p.Generation, pos, got); err != nil {
		e.t.Fatalf("the receiver cannot read %d of %s: %v", pos, group, err)
	}
	if !bytes.Equal(got, data) {
		e.t.Fatalf("the receiver has other bytes at %d of %s", pos, group)
	}
	return true
}

func noise(n int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 7))
	b := make([]byte, n)
	for i := 0; i+8 <= n; i += 8 {
		v := r.Uint64()
		for k := range 8 {
			b[i+k] = byte(v >> (8 * k))
		}
	}
	return b
}

// TestRestart closes either end, and kills it, and goes on.
func TestRestart(t *testing.T) {
	for _, c := range []struct {
		name      string
		near, far func(e *ends)
	}{
		{"near closes", func(e *ends) { e.near.Close(); e.openNear() }, func(*ends) {}},
		{"far closes", func(*ends) {}, func(e *ends) { e.far.Close(); e.openFar() }},
		{"near is killed", func(e *ends) { kill(e.near); e.openNear() }, func(*ends) {}},
		{"far is killed", func(*ends) {}, func(e *ends) { kill(e.far); e.openFar() }},
		{"both are killed", func(e *ends) { kill(e.near); e.openNear() }, func(e *ends) { kill(e.far); e.openFar() }},
		{"both machines restart", func(e *ends) { e.near.Close(); reboot(t, e.nearOpt.Directory); e.openNear() },
			func(e *ends) { e.far.Close(); reboot(t, e.farOpt.Directory); e.openFar() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newEnds(t, 32<<20, 64<<20)
			data := noise(300<<10, 1)
			pos := e.send("g", data)
			for round := range uint64(3) {
				c.near(e)
				c.far(e)
				e.agree()
				if !e.known("g", pos, data) {
					t.Fatalf("after restart %d nothing is known\n%s", round, e.logs.String())
				}
				found := e.senders().Group("g").Lookup([]Sample{{Hash: pos * 0x9e3779b97f4a7c15}}, 1, nil)
				if found[0][0] != pos+64 {
					t.Errorf("the index gives %v for %d", found[0], pos+64)
				}
				more := noise(100<<10, round)
				if p := e.send("g", more); p <= pos || !e.known("g", p, more) || !e.known("g", pos, data) {
					t.Fatalf("after restart %d nothing is recorded", round)
				}
			}
			if e.logs.Len() > 0 {
				t.Errorf("logged:\n%s", e.logs.String())
			}
		})
	}
}

// kill leaves the files as a process that is killed does. What it has mapped stays as it is, for nobody to touch.
func kill(s *Store) {
	close(s.stop)
	s.done.Wait()
	s.lock.Close()
}

// reboot makes the files look as if another run of the kernel had written them.
func reboot(t testing.TB, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != liveFile && d.Name() != noteFile {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		s, rest, _, err := parseState(b)
		if err != nil {
			return err
		}
		s.boot[0] ^= 1
		return os.WriteFile(path, append(s.append(nil), rest...), 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestCrash has machines end without notice: what was brought to the disk before is there, what came later is not trusted.
func TestCrash(t *testing.T) {
	e := newEnds(t, 64<<20, 512<<20)
	old := noise(1<<20, 1)
	first := e.send("g", old)
	e.near.sync(false)
	e.far.sync(false)
	late := noise(1<<20, 2)
	second := e.send("g", late)
	kill(e.near)
	kill(e.far)
	reboot(t, e.nearOpt.Directory)
	reboot(t, e.farOpt.Directory)
	e.openNear()
	e.openFar()
	e.agree()
	if !e.known("g", first, old) {
		t.Error("what was on the disk is not known")
	}
	if e.known("g", second, late) {
		t.Error("what was not on the disk is trusted")
	}
	var third uint64
	for range 1000 { // the first ones may come before the far end has noted that it goes on
		if third = e.send("g", late); e.known("g", third, late) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if third <= second || !e.known("g", third, late) || !e.known("g", first, old) {
		t.Errorf("a position is given twice, or nothing is recorded: %d after %d", third, second)
	}
}

// TestLosses: an end that has lost its files says so, and the other believes it.
func TestLosses(t *testing.T) {
	for _, near := range []bool{true, false} {
		e := newEnds(t, 32<<20, 64<<20)
		data := noise(200<<10, 3)
		pos := e.send("g", data)
		if near {
			e.near.Close()
			os.RemoveAll(e.nearOpt.Directory)
			e.openNear()
		} else {
			e.far.Close()
			os.RemoveAll(e.farOpt.Directory)
			e.openFar()
		}
		e.agree()
		if e.known("g", pos, data) {
			t.Error("what is gone is known")
		}
		if p := e.send("g", data); p == 0 || !e.known("g", p, data) {
			t.Error("nothing is recorded afterwards")
		}
	}
}

func TestLock(t *testing.T) {
	e := newEnds(t, 32<<20, 64<<20)
	if _, err := Open(e.nearOpt); !errors.Is(err, ErrInUse) {
		t.Errorf("a second store in one directory: %v", err)
	}
	if _, err := Remove(e.nearOpt.Directory, nil, ""); !errors.Is(err, ErrInUse) {
		t.Errorf("removing the files of a running agent: %v", err)
	}
	for path, want := range map[string]fs.FileMode{"": fs.ModeDir | 0o700, "lock": 0o600} {
		if info, err := os.Stat(filepath.Join(e.nearOpt.Directory, path)); err != nil || info.Mode() != want {
			t.Errorf("%q: %v, %v", path, info.Mode(), err)
		}
	}
	filepath.WalkDir(e.nearOpt.Directory, func(path string, d fs.DirEntry, err error) error {
		if info, err := d.Info(); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
		return err
	})
}

// TestBounds sends four times the bound through several groups at once, and looks at what is taken after every block.
func TestBounds(t *testing.T) {
	for _, c := range []struct {
		name         string
		memory, disk int64
		groups       []string
	}{
		{"memory, one group", 16 << 20, 0, []string{"a"}},
		{"memory, three groups", 24 << 20, 0, []string{"a", "b", "c"}},
		{"disk, one group", 8 << 20, 32 << 20, []string{"a"}},
		{"disk, three groups", 8 << 20, 40 << 20, []string{"a", "b", "c"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newEnds(t, c.memory, c.disk)
			bound := max(c.disk, c.memory)
			type block struct {
				group string
				pos   uint64
				seed  uint64
			}
			var last block
			recorded, n := 0, uint64(0)
			const size = 200 << 10
			for sent := int64(0); sent < 4*bound; sent += size {
				n++
				last = block{c.groups[int(n/16)%len(c.groups)], 0, n}
				data := noise(size, n)
				if last.pos = e.send(last.group, data); last.pos != 0 {
					recorded++
				}
				for _, s := range []*Store{e.near, e.far} {
					u := s.Usage()
					if u.MemoryBytes > c.memory || c.disk > 0 && u.DiskBytes > c.disk {
						t.Fatalf("after %d bytes: %+v", sent, u)
					}
				}
			}
			if recorded < int(n)*99/100 {
				t.Errorf("%d of %d blocks were recorded", recorded, n)
			}
			if !e.known(last.group, last.pos, noise(size, last.seed)) {
				t.Error("the last block is not known")
			}
			for _, s := range []*Store{e.near, e.far} {
				u := s.Usage()
				if used := max(u.DiskBytes, u.MemoryBytes); used < bound*8/10 {
					t.Errorf("only %d bytes of %d are used", used, bound)
				}
				if c.disk > 0 {
					if on, err := DiskUsage(s.opt.Directory); err != nil || on > c.disk+c.disk/16 {
						t.Errorf("files take %d bytes, the bound is %d; %v", on, c.disk, err)
					}
				}
			}
			if e.logs.Len() > 0 {
				t.Errorf("logged:\n%s", e.logs.String())
			}
		})
	}
}

func TestPurge(t *testing.T) {
	for _, disk := range []int64{0, 64 << 20} {
		e := newEnds(t, 32<<20, disk)
		data := noise(300<<10, 5)
		a, b := e.send("a", data), e.send("b", data)
		if n, _ := e.far.Purge(testKey, "a"); n != 1 {
			t.Errorf("%d logs were purged", n)
		}
		for _, r := range e.receivers().Lacks() {
			e.senders().Lack(r)
		}
		if e.known("a", a, data) || !e.known("b", b, data) {
			t.Error("what was purged is known, or what was not is not")
		}
		e.near.Purge(nil, "")
		e.far.Purge(nil, "")
		for _, s := range []*Store{e.near, e.far} {
			for _, l := range s.Logs() {
				if l.HeldBytes != 0 || l.KnownBytes != 0 {
					t.Errorf("after the purge: %+v", l)
				}
			}
		}
		again := e.send("b", data)
		if again == 0 || !e.known("b", again, data) {
			t.Error("nothing is recorded after a purge")
		}
	}
}

func TestRemove(t *testing.T) {
	e := newEnds(t, 32<<20, 64<<20)
	data := noise(100<<10, 5)
	a := e.send("a", data)
	e.send("b", data)
	e.near.Close()
	if n, err := Remove(e.nearOpt.Directory, testKey, "b"); n != 1 || err != nil {
		t.Errorf("removed %d, %v", n, err)
	}
	e.openNear()
	e.agree()
	if !e.known("a", a, data) || len(e.near.Logs()) != 1 {
		t.Error("more than one group was removed")
	}
	e.near.Close()
	if n, err := Remove(e.nearOpt.Directory, nil, ""); n != 1 || err != nil {
		t.Errorf("removed %d, %v", n, err)
	}
	if _, err := os.Stat(e.nearOpt.Directory); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory is still there: %v", err)
	}
	if n, err := Remove(e.nearOpt.Directory, nil, ""); n != 0 || err != nil {
		t.Errorf("where there is nothing: %d, %v", n, err)
	}
}

// TestUnusable has a directory that cannot be one: histories are in memory, and it is said why.
func TestUnusable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	os.WriteFile(path, nil, 0o600)
	s, err := Open(Options{MemoryBytes: 16 << 20, DiskBytes: 16 << 20, Directory: path})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if u := s.Usage(); len(u.Problems) != 1 || !strings.Contains(u.Problems[0], "in memory only") {
		t.Errorf("%+v", u)
	}
}
