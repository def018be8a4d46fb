// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/cc/insides"
	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/vmtest/lab"
)

// quiet is a path that loses nothing by itself, and on which only data can be lost. No queue builds up before windows of some
// hundred packets.
var quiet = lab.Options{Rate: 400e6, RTT: 20 * time.Millisecond, LossAB: true}

// sysctl sets a setting of the sender's network namespace.
func (p *path) sysctl(name, value string) {
	p.t.Helper()
	setSysctl(p.t, p.A, name, value)
}

// steady keeps windows as they are between two writes, and has nothing sent again but what was lost or is very late: a loaded
// machine makes probes for lost tails go off.
func (p *path) steady() {
	p.t.Helper()
	p.sysctl("tcp_slow_start_after_idle", "0")
	p.sysctl("tcp_early_retrans", "0")
}

func setSysctl(t testing.TB, s *lab.Site, name, value string) {
	t.Helper()
	if err := s.Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/"+name, []byte(value), 0) }); err != nil {
		t.Fatal(err)
	}
}

// stream is a flow that sends in pieces.
type stream struct {
	*flow
	hash hash.Hash
	src  *rand.ChaCha8
	mss  int
}

func (p *path) stream(t testing.TB, name string) *stream {
	t.Helper()
	f := p.dial(t, name)
	if err := f.SetDeadline(time.Now().Add(testkit.Wait(60 * time.Second))); err != nil {
		t.Fatal(err)
	}
	s := &stream{flow: f, hash: sha256.New(), src: rand.NewChaCha8([32]byte{1})}
	s.mss = int(s.now().Snd_mss)
	return s
}

// now is what the kernel says of the flow.
func (s *stream) now() *unix.TCPInfo {
	s.t.Helper()
	i, err := s.info()
	if err != nil {
		s.t.Fatal(err)
	}
	return i
}

// write sends full segments.
func (s *stream) write(segments int) {
	s.t.Helper()
	b := make([]byte, segments*s.mss)
	_, _ = s.src.Read(b)
	s.hash.Write(b)
	if _, err := s.Write(b); err != nil {
		s.t.Fatal(err)
	}
}

// await polls until the flow is as wanted. How long that takes is of no interest. What it returns was read once more: the kernel
// reads the window before it takes the socket's lock, and the rest after, so the two may lie on both sides of an event.
func (s *stream) await(what string, is func(*unix.TCPInfo) bool) *unix.TCPInfo {
	s.t.Helper()
	for end := time.Now().Add(testkit.Wait(40 * time.Second)); ; time.Sleep(time.Millisecond) {
		if is(s.now()) {
			if i := s.now(); is(i) {
				return i
			}
		}
		if time.Now().After(end) {
			s.t.Fatalf("never %s: %+v", what, *s.now())
		}
	}
}

// rest waits until all is acknowledged and repaired.
func (s *stream) rest() *unix.TCPInfo {
	s.t.Helper()
	return s.await("at rest", func(i *unix.TCPInfo) bool { return i.Unacked == 0 && i.Notsent_bytes == 0 })
}

// grow has the window grow, with nothing lost, until it is a good deal larger than what lose and the like send.
func (s *stream) grow() *unix.TCPInfo {
	s.t.Helper()
	i := s.rest()
	for n := 0; n < 30 && i.Snd_cwnd < 64; n++ {
		s.write(40)
		i = s.rest()
	}
	if i.Snd_cwnd < 10 {
		s.t.Fatalf("the window does not grow beyond %d", i.Snd_cwnd)
	}
	return i
}

// some is how many packets are enough to tell a loss by and do not fill a window, so that it does not grow.
func some(cwnd uint32) int { return min(int(cwnd)/2-2, 20) }

// end ends the flow and says whether what arrived is what was sent.
func (s *stream) end() {
	s.t.Helper()
	if err := s.CloseWrite(); err != nil {
		s.t.Fatal(err)
	}
	got, err := io.ReadAll(s)
	if err != nil || string(got) != string(s.hash.Sum(nil)) {
		s.t.Errorf("what arrived is not what was sent: %x, %v", got, err)
	}
	s.Close()
}

// lose loses exactly the next segment, and has some behind it arrive.
func (p *path) lose(s *stream, behind int) {
	p.t.Helper()
	before := p.Link.AB.Stats().Lost
	p.Link.AB.SetLoss(1)
	s.write(1)
	s.await("lost", func(*unix.TCPInfo) bool { return p.Link.AB.Stats().Lost > before })
	p.Link.AB.SetLoss(0)
	s.write(behind)
}

// values is what the algorithm keeps of the flow; nil for the kernel's, and where another process has registered another
// version than ours.
func (p *path) values(r *insides.Reader, name string) map[string]float64 {
	p.t.Helper()
	var sockets []insides.Socket
	if err := p.A.Do(func() (err error) { sockets, err = r.Read(); return err }); err != nil {
		p.t.Fatal(err)
	}
	i := slices.IndexFunc(sockets, func(s insides.Socket) bool { return s.Name == name && s.Cwnd > 0 })
	if i < 0 {
		return nil
	}
	v, err := Values(name, sockets[i].State)
	if err != nil {
		p.t.Fatal(err)
	}
	return v
}

func newReader(t *testing.T) *insides.Reader {
	t.Helper()
	modes(t) // where no algorithm can be, there is nothing to read
	r, err := insides.Open(false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// eachWithKernels runs f with each algorithm of the catalogue and then with the kernel's own of the same name, where there is
// one: what is asked of ours must hold for it, too.
func eachWithKernels(t *testing.T, f func(t *testing.T, name string)) {
	t.Helper()
	withKernels(t, func(string) bool { return true }, f)
}

// withKernels does that for those of ours that are wanted.
func withKernels(t *testing.T, wanted func(name string) bool, f func(t *testing.T, name string)) {
	t.Helper()
	h := newHost(t, modes(t)[0])
	names, err := Available()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range catalogue {
		if !wanted(a.Name) {
			continue
		}
		r := h.register(a.Name)
		t.Run(a.Name, func(t *testing.T) {
			if r.Other {
				t.Log("another process has registered another version: that one is tested, and its state is not read")
			}
			f(t, a.Name)
		})
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if kernels := strings.TrimPrefix(a.Name, ours); slices.Contains(names, kernels) {
			t.Run(kernels, func(t *testing.T) { f(t, kernels) })
		}
	}
}

// undisturbed tries a measurement again when the machine has disturbed it: a segment that was late enough to be sent again is
// a loss that nobody has made.
func undisturbed(t *testing.T, try func() error) {
	t.Helper()
	var err error
	for range 10 {
		if err = try(); err == nil || t.Failed() {
			return
		}
		t.Log("disturbed, once more:", err)
	}
	t.Error(err)
}

// judge takes what is wrong with what an algorithm was seen to do. It fails the test for ours. The kernel's own is there to
// show that the measurement is right, and is measured again: on an emulated machine it is not right every time.
type judge struct {
	t     *testing.T
	name  string
	again bool // ours is measured again, too
	err   error
}

func (j *judge) wrong(format string, args ...any) {
	j.t.Helper()
	if strings.HasPrefix(j.name, ours) && !j.again {
		j.t.Errorf(format, args...)
		return
	}
	if j.err == nil {
		j.err = disturbed("%s: "+format, append([]any{j.name}, args...)...)
	}
}

// disturbed says what stands between a measurement and its result.
func disturbed(format string, args ...any) error { return fmt.Errorf(format, args...) }
