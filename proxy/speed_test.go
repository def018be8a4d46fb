// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	mrand "math/rand/v2"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// A carrier is a way to a server: through two agents, or the peers that these are compared with.
type carrier struct {
	name string
	dial func(b *testing.B, dst netip.AddrPort) *net.TCPConn
}

// carriers are an engine pair, a pair of plain relays, and a pair that speaks TLS between its halves.
func carriers(spec codec.Spec) []carrier {
	return []carrier{
		{"agents", func(b *testing.B, dst netip.AddrPort) *net.TCPConn {
			w := newWorld(b, func(near, far *Config) {
				near.Rules[0].Codec = spec
				near.HistoryBytes, far.HistoryBytes = 256<<20, 256<<20
			})
			return w.steer(dst)
		}},
		{"plain", func(b *testing.B, dst netip.AddrPort) *net.TCPConn { return relayPair(b, dst, false) }},
		{"tls", func(b *testing.B, dst netip.AddrPort) *net.TCPConn { return relayPair(b, dst, true) }},
	}
}

// relayPair connects to a server through two relays that copy what they read.
func relayPair(b *testing.B, dst netip.AddrPort, secure bool) *net.TCPConn {
	b.Helper()
	id := newTestIdentity(b)
	key, err := parseKey(id.Fingerprint())
	if err != nil {
		b.Fatal(err)
	}
	wrap := func(c net.Conn, server bool) net.Conn {
		if !secure {
			return c
		}
		if server {
			return tls.Server(c, id.clientTLS(key))
		}
		return tls.Client(c, id.clientTLS(key))
	}
	far := serve(b, farAddr, func(c *net.TCPConn) {
		out, err := net.Dial("tcp", dst.String())
		if err != nil {
			return
		}
		defer out.Close()
		join(wrap(c, true), out)
	})
	near := serve(b, nearAddr, func(c *net.TCPConn) {
		out, err := net.Dial("tcp", far.String())
		if err != nil {
			return
		}
		defer out.Close()
		join(c, wrap(out, false))
	})
	c, err := net.Dial("tcp", near.String())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

// join copies both ways until either ends.
func join(a, b net.Conn) {
	done := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		go func() {
			io.CopyBuffer(struct{ io.Writer }{way[0]}, struct{ io.Reader }{way[1]}, make([]byte, 128<<10))
			done <- struct{}{}
		}()
	}
	<-done
	a.Close()
	b.Close()
	<-done
}

// parts answers each request, of an offset and a length, with that part of data.
func parts(b *testing.B, data []byte) netip.AddrPort {
	return serve(b, serverAddr, func(c *net.TCPConn) {
		var head [16]byte
		for {
			if _, err := io.ReadFull(c, head[:]); err != nil {
				return
			}
			from, n := binary.BigEndian.Uint64(head[:]), binary.BigEndian.Uint64(head[8:])
			if _, err := c.Write(data[from : from+n]); err != nil {
				return
			}
		}
	})
}

func request(b *testing.B, c *net.TCPConn, buf []byte, from, n uint64) {
	var head [16]byte
	binary.BigEndian.PutUint64(head[:], from)
	binary.BigEndian.PutUint64(head[8:], n)
	if _, err := c.Write(head[:]); err != nil {
		b.Fatal(err)
	}
	for n > 0 {
		k, err := c.Read(buf[:min(uint64(len(buf)), n)])
		if err != nil {
			b.Fatal(err)
		}
		n -= uint64(k)
	}
}

func processCPU() float64 {
	var ru unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &ru)
	return float64(ru.Utime.Nano() + ru.Stime.Nano())
}

// renew makes other bytes of chance of data; what it was decides what it becomes.
func renew(data []byte) {
	mrand.NewChaCha8([32]byte(data)).Read(data)
}

func random(n int) []byte {
	data := make([]byte, n)
	renew(data)
	return data
}

// benchBulk measures a stream that is fetched in parts: all of it the same, or ever new.
func benchBulk(b *testing.B, data []byte, repeat bool, spec codec.Spec) {
	const part = 8 << 20
	for _, c := range carriers(spec) {
		b.Run(c.name, func(b *testing.B) {
			conn, buf := c.dial(b, parts(b, data)), make([]byte, 256<<10)
			for range 3 {
				request(b, conn, buf, 0, part)
			}
			b.SetBytes(part)
			b.ReportAllocs()
			b.ResetTimer()
			before := processCPU()
			at := uint64(part)
			for b.Loop() {
				if repeat {
					request(b, conn, buf, 0, part)
					continue
				}
				if at+part > uint64(len(data)) {
					b.StopTimer()
					renew(data) // else it would come again
					at = part
					b.StartTimer()
				}
				request(b, conn, buf, at, part)
				at += part
			}
			b.ReportMetric((processCPU()-before)/float64(b.N)/(part>>20)/1e3, "cpu-us/MiB")
		})
	}
}

func BenchmarkRepeats(b *testing.B) { benchBulk(b, random(8<<20), true, codec.Spec{}) }
func BenchmarkNew(b *testing.B)     { benchBulk(b, random(256<<20), false, codec.Spec{}) }

// BenchmarkExchange measures 100 bytes there and 100 bytes back.
func BenchmarkExchange(b *testing.B) {
	for _, c := range carriers(codec.Spec{}) {
		b.Run(c.name, func(b *testing.B) {
			conn := c.dial(b, serve(b, serverAddr, echo))
			buf := random(100)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := conn.Write(buf); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(conn, buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
