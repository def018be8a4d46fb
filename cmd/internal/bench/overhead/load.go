// SPDX-License-Identifier: Apache-2.0

package overhead

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// LoadCommand is the hidden command by which the executable is the client.
const LoadCommand = "bench-load" // bench-load connect|bulk ADDRESS FOR PARALLEL SEED

const (
	// chunk is how much is written and read at once, in bytes.
	chunk = 256 << 10
	// leastConnects are made on the slowest machine, however long they take, up to overtime times what was meant.
	leastConnects = 16
	overtime      = 8
	// maxFailures in a row end a thread: then something is wrong that more of them would not tell better.
	maxFailures = 20
)

// Load is what a client did.
type Load struct {
	Connects uint64        `json:"connects"`
	Failed   uint64        `json:"failed"`
	Failure  string        `json:"failure,omitempty"` // one of them
	Bytes    uint64        `json:"bytes"`             // taken by the server
	Took     time.Duration `json:"took"`
}

type loadArgs struct {
	address  [4]byte
	duration time.Duration
	parallel int
	seed     uint64
}

// LoadMain is the command LoadCommand: it says that it is ready, waits for a line, works for the time given and prints a
// Load.
func LoadMain(args []string, stdin io.Reader, stdout io.Writer) error {
	a, err := parseLoad(args)
	if err != nil {
		return fmt.Errorf("%s: %w", LoadCommand, err)
	}
	run := map[string]func(loadArgs) (Load, error){"connect": connects, "bulk": bulk}[args[0]]
	if run == nil {
		return fmt.Errorf("%s: no load %q", LoadCommand, args[0])
	}
	fmt.Fprintln(stdout, "ready")
	if _, err := bufio.NewReader(stdin).ReadString('\n'); err != nil {
		return fmt.Errorf("waiting for the start: %w", err)
	}
	l, err := run(a)
	if err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(l)
}

func parseLoad(args []string) (a loadArgs, err error) {
	address, err := netip.ParseAddr(args[1])
	if err != nil || !address.Is4() {
		return a, fmt.Errorf("address %q: %w", args[1], err)
	}
	a.address = address.As4()
	if a.duration, err = time.ParseDuration(args[2]); err != nil {
		return a, err
	}
	if a.parallel, err = strconv.Atoi(args[3]); err != nil {
		return a, err
	}
	a.seed, err = strconv.ParseUint(args[4], 10, 64)
	return a, err
}

// connects has each of the threads connect, have a byte echoed, and close, one connection after the other.
func connects(a loadArgs) (Load, error) {
	var mu sync.Mutex
	var total Load
	var wait sync.WaitGroup
	start := time.Now()
	for i := range a.parallel {
		wait.Go(func() {
			l := connectLoop(&unix.SockaddrInet4{Addr: a.address, Port: firstPort + i%echoPorts}, a.duration, leastConnects/a.parallel)
			mu.Lock()
			defer mu.Unlock()
			total.Connects += l.Connects
			total.Failed += l.Failed
			if l.Failure != "" {
				total.Failure = l.Failure
			}
		})
	}
	wait.Wait()
	total.Took = time.Since(start)
	if total.Connects == 0 {
		return total, fmt.Errorf("no connection came about: %s", total.Failure)
	}
	return total, nil
}

func connectLoop(to *unix.SockaddrInet4, duration time.Duration, least int) (l Load) {
	start, inARow := time.Now(), 0
	for {
		if err := once(to); err != nil {
			l.Failed++
			l.Failure = err.Error()
			if inARow++; inARow == maxFailures {
				return l
			}
		} else {
			l.Connects++
			inARow = 0
		}
		since := time.Since(start)
		if since >= duration && (l.Connects >= uint64(least) || since >= overtime*duration) {
			return l
		}
	}
}

func once(to *unix.SockaddrInet4) error {
	fd, err := dial(to)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	b := [1]byte{'x'}
	if err := writeAll(fd, b[:]); err != nil {
		return err
	}
	n, err := read(fd, b[:])
	if err == nil && n == 0 {
		err = errors.New("the connection ended before the echo")
	}
	return err
}

func dial(to *unix.SockaddrInet4) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if err := unix.Connect(fd, to); err != nil {
		_ = unix.Close(fd)
		return -1, os.NewSyscallError("connect", err)
	}
	return fd, nil
}

// bulk sends one stream whose bytes neither repeat nor compress: what an engine can do least about. It ends when the
// server has said that it took them all.
func bulk(a loadArgs) (l Load, err error) {
	words := make([]uint64, chunk/8)
	rng := rand.New(rand.NewPCG(a.seed, 2))
	for i := range words {
		words[i] = rng.Uint64()
	}
	buf := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), chunk)
	start := time.Now()
	fd, err := dial(&unix.SockaddrInet4{Addr: a.address, Port: bulkPort})
	if err != nil {
		return l, err
	}
	defer unix.Close(fd)
	for time.Since(start) < a.duration {
		if err := writeAll(fd, buf); err != nil {
			return l, err
		}
		l.Bytes += chunk
		for i := range words { // other bytes from the generator would cost more than what is measured
			words[i] += 0x9e3779b97f4a7c15
		}
	}
	if err := unix.Shutdown(fd, unix.SHUT_WR); err != nil {
		return l, os.NewSyscallError("shutdown", err)
	}
	var answer [8]byte
	if _, err := io.ReadFull(reader(fd), answer[:]); err != nil {
		return l, fmt.Errorf("waiting for the server's count: %w", err)
	}
	if took := binary.BigEndian.Uint64(answer[:]); took != l.Bytes {
		return l, fmt.Errorf("%d bytes were sent, the server took %d", l.Bytes, took)
	}
	l.Took = time.Since(start)
	return l, nil
}

type reader int

func (r reader) Read(b []byte) (int, error) {
	n, err := read(int(r), b)
	if n == 0 && err == nil {
		return 0, io.EOF
	}
	return max(n, 0), err
}
