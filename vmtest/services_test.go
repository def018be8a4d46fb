// SPDX-License-Identifier: Apache-2.0

package vmtest

import (
	"bufio"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/trunkline/trunkline/vmtest/lab"
)

// Ports of the test services at site B. The dedup rule of the tests names them all but portPlain.
const (
	portEcho   = 7000 // sends back what it gets, closes its side at the end of input
	portSource = 7001 // "BYTES SEED\n": sends that stream, then closes its side
	portSink   = 7002 // reads to the end of input, answers "SHA256 BYTES\n"
	portReset  = 7003 // sends 100,000 bytes, then resets
	portHold   = 7004 // says "hello\n", then holds the connection until the client ends it
	portNobody = 7005 // nobody listens
	portPlain  = 7100 // echo, in no rule
)

var services = map[uint16]func(*net.TCPConn){
	portEcho: serveEcho, portSource: serveSource, portSink: serveSink, portReset: serveReset, portHold: serveHold, portPlain: serveEcho,
}

// serve starts the services on every address of the site.
func serve(t *testing.T, site *lab.Site, addrs ...netip.Addr) {
	t.Helper()
	for _, addr := range addrs {
		if !addr.IsValid() { // a family that the lab has not
			continue
		}
		for port, f := range services {
			l := listenAt(t, site, netip.AddrPortFrom(addr, port))
			go acceptLoop(l, f)
		}
	}
}

func listenAt(t *testing.T, site *lab.Site, at netip.AddrPort) net.Listener {
	t.Helper()
	var l net.Listener
	err := site.Do(func() (err error) {
		lc := net.ListenConfig{}
		lc.SetMultipathTCP(true) // as a Go server has it, so that MPTCP clients are served
		l, err = lc.Listen(context.Background(), "tcp", at.String())
		return err
	})
	if err != nil {
		t.Fatalf("listening at %v: %v", at, err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func acceptLoop(l net.Listener, f func(*net.TCPConn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			f(c.(*net.TCPConn))
		}()
	}
}

func serveEcho(c *net.TCPConn) {
	_, _ = io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c})
	_ = c.CloseWrite()
}

func serveSource(c *net.TCPConn) {
	var n int64
	var seed uint64
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return
	}
	if _, err := fmt.Sscan(strings.TrimSpace(line), &n, &seed); err != nil {
		return
	}
	if _, err := io.Copy(c, streamOf(seed, n)); err != nil {
		return
	}
	_ = c.CloseWrite()
	_, _ = io.Copy(io.Discard, c)
}

func serveSink(c *net.TCPConn) {
	h := sha256.New()
	n, err := io.Copy(h, c)
	if err != nil {
		return
	}
	fmt.Fprintf(c, "%s %d\n", sumHex(h), n)
	_ = c.CloseWrite()
}

func serveReset(c *net.TCPConn) {
	_, _ = io.CopyN(c, newStream(1), 100_000)
	_ = c.SetLinger(0)
}

func serveHold(c *net.TCPConn) {
	fmt.Fprint(c, "hello\n")
	_, _ = io.Copy(io.Discard, c)
}

func serveDatagrams(t *testing.T, site *lab.Site, at netip.AddrPort) {
	t.Helper()
	var c net.PacketConn
	err := site.Do(func() (err error) {
		c, err = net.ListenPacket("udp", at.String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		buf := make([]byte, 2048)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = c.WriteTo(buf[:n], from)
		}
	}()
}
