// SPDX-License-Identifier: Apache-2.0

package vmtest

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/internal/testkit"
)

// outcome is what a client child saw; it prints one as JSON.
type outcome struct {
	OK      int            `json:"ok"`      // exchanges that ended well, byte-exact
	Wrong   int            `json:"wrong"`   // clean ends with wrong or missing bytes: must never happen
	Errors  map[string]int `json:"errors"`  // by kind: refused, reset, timeout, other
	Example string         `json:"example"` // one error of kind other
	Bytes   int64          `json:"bytes"`
	Local   string         `json:"local"`  // the last connection's ends as the client sees them
	Remote  string         `json:"remote"` //
	mu      sync.Mutex
}

func (o *outcome) good(n int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.OK++
	o.Bytes += n
}

func (o *outcome) bad(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.Wrong++
	o.Example = fmt.Sprintf(format, args...)
}

func (o *outcome) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.Errors == nil {
		o.Errors = map[string]int{}
	}
	kind := errorKind(err)
	o.Errors[kind]++
	if kind == "other" {
		o.Example = err.Error()
	}
}

func errorKind(err error) string {
	var ne net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "reset"
	case errors.As(err, &ne) && ne.Timeout(), errors.Is(err, syscall.ETIMEDOUT):
		return "timeout"
	default:
		return "other"
	}
}

func (o *outcome) print() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	_ = json.NewEncoder(os.Stdout).Encode(o)
	return 0
}

// job is what a client child is asked to do, from its flags.
type job struct {
	addr       string
	count      int
	concurrent int
	bytes      int64
	seed       uint64
	rateBps    int64
	pause      time.Duration
	untilEOF   bool
	mptcp      bool
	device     string
}

func parseJob(args []string) *job {
	j := &job{}
	fs := flag.NewFlagSet("role", flag.ExitOnError)
	fs.StringVar(&j.addr, "addr", "", "where to connect")
	fs.IntVar(&j.count, "count", 1, "exchanges")
	fs.IntVar(&j.concurrent, "concurrent", 1, "of them at once")
	fs.Int64Var(&j.bytes, "bytes", 0, "bytes an exchange")
	fs.Uint64Var(&j.seed, "seed", 1, "of the first exchange's stream; the others follow")
	fs.Int64Var(&j.rateBps, "rate", 0, "read no faster, bytes a second")
	fs.DurationVar(&j.pause, "pause", 0, "wait before the first read")
	fs.BoolVar(&j.untilEOF, "stdin", false, "run until standard input closes, whatever -count says")
	fs.BoolVar(&j.mptcp, "mptcp", false, "use Multipath TCP")
	fs.StringVar(&j.device, "device", "", "bind the socket to this device")
	_ = fs.Parse(args)
	return j
}

// each runs the exchanges, concurrent at once.
func (j *job) each(o *outcome, f func(seed uint64) error) {
	stop := make(chan struct{})
	if j.untilEOF {
		go func() { _, _ = io.Copy(io.Discard, os.Stdin); close(stop) }()
	}
	work := make(chan uint64)
	var wg sync.WaitGroup
	for range j.concurrent {
		wg.Go(func() {
			for seed := range work {
				if err := f(seed); err != nil {
					o.fail(err)
				}
			}
		})
	}
	for i := 0; j.untilEOF || i < j.count; i++ {
		select {
		case work <- j.seed + uint64(i):
			continue
		case <-stop:
		}
		break
	}
	close(work)
	wg.Wait()
}

func (j *job) dial(o *outcome) (*net.TCPConn, error) {
	d := net.Dialer{Timeout: testkit.Wait(20 * time.Second)}
	d.SetMultipathTCP(j.mptcp)
	if j.device != "" {
		d.Control = func(_, _ string, c syscall.RawConn) error {
			var err error
			if ctl := c.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), j.device) }); ctl != nil {
				return ctl
			}
			return err
		}
	}
	c, err := d.Dial("tcp", j.addr)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	o.Local, o.Remote = c.LocalAddr().String(), c.RemoteAddr().String()
	o.mu.Unlock()
	return c.(*net.TCPConn), nil
}

var roles = map[string]func([]string) int{
	"echo":  func(a []string) int { return run(a, exchangeEcho) },
	"fetch": func(a []string) int { return run(a, exchangeFetch) },
	"push":  func(a []string) int { return run(a, exchangePush) },
	"drink": func(a []string) int { return run(a, exchangeDrink) },
	"udp":   func(a []string) int { return run(a, exchangeDatagram) },
}

func run(args []string, exchange func(*job, *outcome, uint64) error) int {
	j, o := parseJob(args), &outcome{}
	j.each(o, func(seed uint64) error { return exchange(j, o, seed) })
	return o.print()
}

// exchangeEcho sends a few bytes and wants them back.
func exchangeEcho(j *job, o *outcome, seed uint64) error {
	c, err := j.dial(o)
	if err != nil {
		return err
	}
	defer c.Close()
	want := fmt.Sprintf("%016x%0*d", seed, int(max(j.bytes, 17)-16), 0)
	if _, err := io.WriteString(c, want); err != nil {
		return err
	}
	got := make([]byte, len(want))
	n, err := io.ReadFull(c, got)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		o.bad("echo ended cleanly after %d of %d bytes", n, len(want))
		return nil
	case err != nil:
		return err
	case string(got) != want:
		o.bad("echo gave %q for %q", got, want)
		return nil
	}
	o.good(int64(n))
	return nil
}

// exchangeFetch asks the source for a stream and compares what comes, reading as slowly as the job says.
func exchangeFetch(j *job, o *outcome, seed uint64) error {
	c, err := j.dial(o)
	if err != nil {
		return err
	}
	defer c.Close()
	fmt.Fprintf(c, "%d %d\n", j.bytes, seed)
	time.Sleep(j.pause)
	h := sha256.New()
	n, err := io.Copy(h, throttle(c, j.rateBps))
	if err != nil {
		return err
	}
	if got := sumHex(h); n != j.bytes || got != streamSum(seed, j.bytes) {
		o.bad("fetch of stream %d ended cleanly with %d of %d bytes, sha256 %s", seed, n, j.bytes, got)
		return nil
	}
	o.good(n)
	return nil
}

// exchangePush sends a stream, closes its side, and wants the sink's sum of it: a half-close.
func exchangePush(j *job, o *outcome, seed uint64) error {
	c, err := j.dial(o)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := io.Copy(c, streamOf(seed, j.bytes)); err != nil {
		return err
	}
	if err := c.CloseWrite(); err != nil {
		return err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if want := fmt.Sprintf("%s %d\n", streamSum(seed, j.bytes), j.bytes); line != want {
		o.bad("the sink answered %q, want %q", line, want)
		return nil
	}
	o.good(j.bytes)
	return nil
}

// exchangeDrink reads whatever comes until it ends.
func exchangeDrink(j *job, o *outcome, _ uint64) error {
	c, err := j.dial(o)
	if err != nil {
		return err
	}
	defer c.Close()
	n, err := io.Copy(io.Discard, throttle(c, j.rateBps))
	o.mu.Lock()
	o.Bytes += n
	o.mu.Unlock()
	if err == nil {
		o.good(0)
	}
	return err
}

// exchangeDatagram sends a datagram on a connected UDP socket and wants it back.
func exchangeDatagram(j *job, o *outcome, seed uint64) error {
	c, err := net.DialTimeout("udp", j.addr, testkit.Wait(5*time.Second))
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(testkit.Wait(5 * time.Second)))
	want := fmt.Sprintf("%016x", seed)
	if _, err := io.WriteString(c, want); err != nil {
		return err
	}
	got := make([]byte, 100)
	n, err := c.Read(got)
	if err != nil {
		return err
	}
	if string(got[:n]) != want {
		o.bad("the datagram %q came back as %q", want, got[:n])
		return nil
	}
	o.good(int64(n))
	return nil
}

// throttle hides c's type, so that nothing splices, and reads no faster than rateBps where that is not 0.
func throttle(c io.Reader, rateBps int64) io.Reader {
	if rateBps == 0 {
		return struct{ io.Reader }{c}
	}
	return &slowReader{c: c, rateBps: rateBps, start: time.Now()}
}

type slowReader struct {
	c       io.Reader
	rateBps int64
	start   time.Time
	n       int64
}

func (s *slowReader) Read(p []byte) (int, error) {
	if ahead := time.Duration(float64(s.n)/float64(s.rateBps)*1e9) - time.Since(s.start); ahead > 0 {
		time.Sleep(ahead)
	}
	n, err := s.c.Read(p[:min(len(p), 64<<10)])
	s.n += int64(n)
	return n, err
}
