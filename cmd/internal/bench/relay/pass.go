// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// PassCommand is the hidden command by which the executable is one relay of a pair.
const PassCommand = "bench-relay-pass" // bench-relay-pass LISTEN TARGET plain|tls near|far PACING

// The two ends of a pair: the near one's connection to the far one is the link.
const (
	nearEnd = "near"
	farEnd  = "far"
)

const passBuffer = 128 << 10

// PassMain is the command PassCommand. It copies between each connection to LISTEN and one to TARGET. What it sends over the
// link is paced to PACING bytes per second; 0: not at all.
func PassMain(args []string, stdout io.Writer) error {
	target, secure, far := args[1], args[2] == wayTLS, args[3] == farEnd
	pacing, err := strconv.ParseUint(args[4], 10, 64)
	if err != nil {
		return fmt.Errorf("pacing %q: %w", args[4], err)
	}
	config, err := throwaway()
	if err != nil {
		return err
	}
	l, err := listen(args[0])
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, "ready")
	for {
		in, err := l.Accept()
		if err != nil {
			return fmt.Errorf("relaying on %s: %w", args[0], err)
		}
		go func() {
			defer in.Close()
			out, err := net.Dial("tcp", target)
			if err != nil {
				return // the client sees the end
			}
			defer out.Close()
			link := &out
			if far {
				link = &in
			}
			if pace(*link, pacing) != nil {
				return
			}
			switch {
			case secure && far:
				*link = tls.Server(*link, config)
			case secure:
				*link = tls.Client(*link, config)
			}
			both(in, out)
		}()
	}
}

// both copies both ways until one ends.
func both(a, b net.Conn) {
	var ways sync.WaitGroup
	for _, way := range [2][2]net.Conn{{a, b}, {b, a}} {
		ways.Go(func() {
			// Plain reads and writes, as the engine's: where no codec needs the bytes, splice(2) would spare copies.
			_, _ = io.CopyBuffer(struct{ io.Writer }{way[0]}, struct{ io.Reader }{way[1]}, make([]byte, passBuffer))
			a.Close()
			b.Close()
		})
	}
	ways.Wait()
}

func pace(c net.Conn, bytesPerSecond uint64) error {
	if bytesPerSecond == 0 {
		return nil
	}
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) {
		inner = unix.SetsockoptUint64(int(fd), unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, bytesPerSecond)
	}); err != nil {
		return err
	}
	return inner
}

// listen opens a plain TCP listener: the kernel steers no MPTCP.
func listen(address string) (net.Listener, error) {
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
	}}
	lc.SetMultipathTCP(false)
	l, err := lc.Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", address, err)
	}
	return l, nil
}

// throwaway makes a TLS configuration for both ends that lasts as long as the process: what it costs is measured, not trust.
func throwaway() (*tls.Config, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}}, MinVersion: tls.VersionTLS13,
		InsecureSkipVerify: true, DynamicRecordSizingDisabled: true,
	}, nil
}
