// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// pcap writes a capture packet by packet.
type pcap struct {
	t     testing.TB
	path  string
	write func(gopacket.CaptureInfo, []byte) error
	done  func()
	now   time.Time
	snap  int // bytes kept of each packet; 0: all
}

func newPcap(t testing.TB, name string) *pcap {
	t.Helper()
	p := &pcap{t: t, path: filepath.Join(t.TempDir(), name), now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	f, err := os.Create(p.path)
	if err != nil {
		t.Fatal(err)
	}
	p.done = func() {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if filepath.Ext(name) == ".pcapng" {
		w, err := pcapgo.NewNgWriter(f, layers.LinkTypeEthernet)
		if err != nil {
			t.Fatal(err)
		}
		closeFile := p.done
		p.write, p.done = w.WritePacket, func() {
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
			closeFile()
		}
		return p
	}
	w := pcapgo.NewWriter(f)
	if err := w.WriteFileHeader(1<<18, layers.LinkTypeEthernet); err != nil {
		t.Fatal(err)
	}
	p.write = w.WritePacket
	return p
}

// packet writes layers as one Ethernet packet, a millisecond after the one before it.
func (p *pcap) packet(parts ...gopacket.SerializableLayer) {
	p.t.Helper()
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, parts...); err != nil {
		p.t.Fatal(err)
	}
	data := b.Bytes()
	p.now = p.now.Add(time.Millisecond)
	info := gopacket.CaptureInfo{Timestamp: p.now, Length: len(data), CaptureLength: len(data)}
	if p.snap > 0 {
		info.CaptureLength = min(len(data), p.snap)
	}
	if err := p.write(info, data[:info.CaptureLength]); err != nil {
		p.t.Fatal(err)
	}
}

// wire is a TCP connection whose packets a test writes as it likes.
type wire struct {
	p              *pcap
	client, server net.IP
	from, to       uint16
	next           [2]uint32 // sequence numbers
	vlan           bool
}

func (p *pcap) wire(port, from uint16) *wire {
	return &wire{p: p, client: net.IPv4(10, 1, 0, 2).To4(), server: net.IPv4(10, 2, 0, 2).To4(), from: from, to: port, next: [2]uint32{4294967000, 77}}
}

// wire6 is the same over IPv6.
func (p *pcap) wire6(port, from uint16) *wire {
	w := p.wire(port, from)
	w.client, w.server = net.ParseIP("fd00::1"), net.ParseIP("fd00::2")
	return w
}

// segment writes one packet at seq.
func (w *wire) segment(dir int, seq uint32, flags string, data []byte) {
	src, dst, sport, dport := w.client, w.server, w.from, w.to
	if dir == fromServer {
		src, dst, sport, dport = dst, src, dport, sport
	}
	tcp := &layers.TCP{SrcPort: layers.TCPPort(sport), DstPort: layers.TCPPort(dport), Seq: seq, Ack: w.next[1-dir], Window: 1 << 15, ACK: flags != "S"}
	for _, f := range flags {
		tcp.SYN, tcp.FIN, tcp.RST = tcp.SYN || f == 'S', tcp.FIN || f == 'F', tcp.RST || f == 'R'
	}
	ether := &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, EthernetType: layers.EthernetTypeIPv4}
	parts := []gopacket.SerializableLayer{ether}
	var network gopacket.SerializableLayer
	if src.To4() != nil {
		ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: src, DstIP: dst}
		_, network = tcp.SetNetworkLayerForChecksum(ip), ip
	} else {
		ether.EthernetType = layers.EthernetTypeIPv6
		ip := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolTCP, SrcIP: src, DstIP: dst}
		_, network = tcp.SetNetworkLayerForChecksum(ip), ip
	}
	if w.vlan {
		parts = append(parts, &layers.Dot1Q{VLANIdentifier: 7, Type: ether.EthernetType})
		ether.EthernetType = layers.EthernetTypeDot1Q
	}
	w.p.packet(append(parts, network, tcp, gopacket.Payload(data))...)
}

func (w *wire) open() {
	w.segment(fromClient, w.next[0], "S", nil)
	w.next[0]++
	w.segment(fromServer, w.next[1], "SA", nil)
	w.next[1]++
	w.segment(fromClient, w.next[0], "A", nil)
}

// send writes data in packets of size bytes, in order.
func (w *wire) send(dir, size int, data []byte) {
	for len(data) > 0 {
		n := min(size, len(data))
		w.segment(dir, w.next[dir], "A", data[:n])
		w.next[dir] += uint32(n)
		data = data[n:]
	}
}

func (w *wire) close() {
	w.segment(fromClient, w.next[0], "F", nil)
	w.next[0]++
	w.segment(fromServer, w.next[1], "F", nil)
	w.next[1]++
	w.segment(fromClient, w.next[0], "A", nil)
}

// noise is data that neither repeats nor compresses.
func noise(seed byte, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}
