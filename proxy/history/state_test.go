// SPDX-License-Identifier: Apache-2.0

package history

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func someState() state {
	return state{direction: sent, boot: bootID{1, 2, 3}, bound: 1 << 20, generation: 77, base: 10, head: 5000, ahead: 90_000, group: "web",
		held: []span{{10, 400}, {500, 5000}}}
}

func TestState(t *testing.T) {
	for _, s := range []state{someState(), {direction: received, bound: minBound, group: "g", clean: true, held: []span{}}} {
		b := s.append(nil)
		got, rest, _, err := parseState(append(b, "more"...))
		if err != nil || !reflect.DeepEqual(got, s) || string(rest) != "more" {
			t.Errorf("got %+v, %q, %v, want %+v", got, rest, err, s)
		}
	}
}

// TestDamagedState cuts a state short everywhere, and turns each of its bits round.
func TestDamagedState(t *testing.T) {
	s := someState()
	b := s.append(nil)
	for n := range b {
		if _, _, _, err := parseState(b[:n]); !errors.Is(err, errDamaged) {
			t.Errorf("cut to %d of %d bytes: %v", n, len(b), err)
		}
	}
	for bit := range 8 * len(b) {
		b[bit/8] ^= 1 << (bit % 8)
		if _, _, _, err := parseState(b); !errors.Is(err, errDamaged) {
			t.Errorf("with bit %d turned: %v", bit, err)
		}
		b[bit/8] ^= 1 << (bit % 8)
	}
}

func TestImpossibleStates(t *testing.T) {
	for name, change := range map[string]func(*state){
		"no direction":      func(s *state) { s.direction = 'x' },
		"odd bound":         func(s *state) { s.bound = 1 },
		"huge bound":        func(s *state) { s.bound = 1 << 63 },
		"no group":          func(s *state) { s.group = "" },
		"head too far":      func(s *state) { s.head = MaxPos + 1 },
		"base beyond head":  func(s *state) { s.base = s.head + 1 },
		"ahead too far":     func(s *state) { s.ahead = MaxPos + 1 },
		"span beyond head":  func(s *state) { s.held = []span{{4000, 5001}} },
		"empty span":        func(s *state) { s.held = []span{{40, 40}} },
		"spans in disorder": func(s *state) { s.held = []span{{400, 500}, {10, 20}} },
		"spans that touch":  func(s *state) { s.held = []span{{10, 20}, {20, 30}} },
		"too many spans": func(s *state) {
			s.held = nil
			for i := range uint64(5000) {
				s.held = append(s.held, span{2 * i, 2*i + 1})
			}
			s.head = 20_000
		},
	} {
		s := someState()
		change(&s)
		if _, _, _, err := parseState(s.append(nil)); !errors.Is(err, errDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestReplay follows changes up to where one is damaged, or belongs to another state.
func TestReplay(t *testing.T) {
	s := someState()
	_, _, check, err := parseState(s.append(nil))
	if err != nil {
		t.Fatal(err)
	}
	changes := []change{{lo: 5000, hi: 6000}, {lo: 600, hi: 700, drop: true}, {lo: 7000, hi: 8000}}
	var b []byte
	for n, c := range changes {
		b = c.append(b, check, n)
	}
	want := []span{{10, 400}, {500, 600}, {700, 6000}, {7000, 8000}}
	got := someState()
	if got.replay(append(b, make([]byte, 100)...), check); !reflect.DeepEqual(got.held, want) || got.head != 8000 {
		t.Errorf("held %v, head %d", got.held, got.head)
	}
	for i := range b {
		bad := append([]byte(nil), b...)
		bad[i] ^= 0x10
		got := someState()
		got.replay(bad, check)
		n := i / changeSize // so many are whole
		if got.head != []uint64{5000, 6000, 6000}[n] {
			t.Errorf("with byte %d turned the head is %d", i, got.head)
		}
	}
	got = someState()
	if got.replay(b, check+1); got.head != 5000 {
		t.Error("changes of another state were followed")
	}
	got = someState()
	if got.replay(b[changeSize:], check); got.head != 5000 {
		t.Error("changes were followed out of turn")
	}
}

// TestSurvive: after a crash of the machine what may have been overwritten is not trusted.
func TestSurvive(t *testing.T) {
	s := someState()
	_, _, size := sizes(int64(s.bound))
	s.ahead = size + 100
	s.survive()
	if !reflect.DeepEqual(s.held, []span{{100, 400}, {500, 5000}}) || s.head != size+100 {
		t.Errorf("held %v, head %d", s.held, s.head)
	}
	s = someState()
	s.direction, s.clean = received, true
	before := s
	if s.survive(); !reflect.DeepEqual(s, before) {
		t.Error("an orderly end loses something")
	}
}

// FuzzState reads whatever a file may hold: no panic, nothing absurd, and what is read is written the same.
func FuzzState(f *testing.F) {
	s := someState()
	b := s.append(nil)
	_, _, check, _ := parseState(b)
	f.Add(b)
	f.Add(change{lo: 5000, hi: 6000}.append(b, check, 0))
	f.Add(b[:40])
	f.Fuzz(func(t *testing.T, in []byte) {
		s, rest, check, err := parseState(in)
		if err != nil {
			return
		}
		if again, _, _, err := parseState(s.append(nil)); err != nil || !reflect.DeepEqual(again, s) {
			t.Fatalf("%+v became %+v, %v", s, again, err)
		}
		s.replay(rest, check)
		if err := s.verify(); err != nil {
			t.Fatalf("after its changes: %v", err)
		}
		s.survive()
		if err := s.verify(); err != nil {
			t.Fatalf("after a crash: %v", err)
		}
	})
}

// FuzzReplay has changes whose checks fit, and that say anything.
func FuzzReplay(f *testing.F) {
	f.Add(uint64(5000), uint64(6000), false, uint64(10), uint64(1<<40), true)
	f.Add(uint64(1<<62), uint64(1<<62+5), false, uint64(0), uint64(1), false)
	f.Fuzz(func(t *testing.T, lo, hi uint64, drop bool, lo2, hi2 uint64, drop2 bool) {
		s := someState()
		b := change{lo, hi &^ dropBit, drop}.append(nil, 9, 0)
		s.replay(change{lo2, hi2 &^ dropBit, drop2}.append(b, 9, 1), 9)
		if err := s.verify(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestDamagedFiles damages each file of a log in several ways: both ends go on, and nothing wrong is ever given.
func TestDamagedFiles(t *testing.T) {
	damages := map[string]func(path string) error{
		"gone":      os.Remove,
		"empty":     func(p string) error { return os.Truncate(p, 0) },
		"short":     func(p string) error { return os.Truncate(p, 100) },
		"long":      func(p string) error { return os.Truncate(p, 1<<30) },
		"directory": func(p string) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o700)) },
		"link":      func(p string) error { return errors.Join(os.Remove(p), os.Symlink("/dev/zero", p)) },
		"foreign":   func(p string) error { return os.WriteFile(p, noise(5000, 9), 0o600) },
	}
	for _, file := range []string{liveFile, noteFile, ringFile, indexFile, "epoch"} {
		for name, damage := range damages {
			t.Run(file+" "+name, func(t *testing.T) {
				e := newEnds(t, 16<<20, 16<<20)
				data := noise(100<<10, 1)
				pos := e.send("g", data)
				e.near.Close()
				e.far.Close()
				damaged := 0
				for _, dir := range []string{e.nearOpt.Directory, e.farOpt.Directory} {
					pattern := filepath.Join(dir, "*", "*", file)
					if file == "epoch" {
						pattern = filepath.Join(dir, "*", file)
					}
					found, _ := filepath.Glob(pattern)
					for _, path := range found {
						damaged++
						if err := damage(path); err != nil {
							t.Fatal(err)
						}
					}
				}
				if damaged == 0 {
					t.Fatal("nothing was damaged")
				}
				e.openNear()
				e.openFar()
				e.agree()
				e.known("g", pos, data) // checks the bytes, if it is
				if p := e.send("g", data); p == 0 || !e.known("g", p, data) {
					t.Errorf("nothing is recorded afterwards\n%s", e.logs.String())
				}
				if u := e.near.Usage(); len(u.Problems) > 0 {
					t.Errorf("%v", u.Problems)
				}
			})
		}
	}
}
