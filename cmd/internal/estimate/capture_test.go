// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"bytes"
	"compress/gzip"
	"os"
	"strings"
	"testing"
)

// one returns the only flow and the only capture.
func one(t *testing.T, r *Result) (Flow, Capture) {
	t.Helper()
	if len(r.Flows) != 1 || len(r.Captures) != 1 || r.FlowCount != 1 {
		t.Fatalf("%d flows in %d captures", r.FlowCount, len(r.Captures))
	}
	return r.Flows[0], r.Captures[0]
}

// A connection in both directions, whatever the capture's format and the packets' lower layers are.
func TestBothDirectionsOfAConnection(t *testing.T) {
	request, answer := noise(1, 300), noise(2, 100_000)
	for _, name := range []string{"x.pcap", "x.pcapng", "v6.pcap", "vlan.pcap"} {
		t.Run(name, func(t *testing.T) {
			p := newPcap(t, name)
			w := p.wire(80, 40000)
			if name == "v6.pcap" {
				w = p.wire6(80, 40000)
			}
			w.vlan = name == "vlan.pcap"
			w.open()
			w.send(fromClient, 1448, request)
			w.send(fromServer, 1448, answer)
			w.close()
			p.done()
			f, c := one(t, estimate(t, p.path))
			if f.RawBytes != 100_300 || f.WireBytes < 100_300 || f.WireBytes > 100_500 || f.Protocol != "" || f.GapBytes != 0 {
				t.Errorf("%+v", f)
			}
			if !strings.HasSuffix(f.Server, ":80") || !strings.HasSuffix(f.Client, ":40000") || c.Retransmitted+c.OutOfOrder+c.Gaps+c.Unestablished+c.OtherPackets != 0 {
				t.Errorf("%+v, %+v", f, c)
			}
		})
	}
}

// What was sent before, by any connection in the same direction, is not sent again.
func TestRepeatsAmongConnections(t *testing.T) {
	p := newPcap(t, "x.pcap")
	answer := noise(2, 200_000)
	for i := range uint16(3) {
		w := p.wire(8080, 40000+i)
		w.open()
		w.send(fromClient, 1448, noise(byte(10+i), 500))
		w.send(fromServer, 1448, answer)
		w.close()
	}
	p.done()
	r := estimate(t, p.path)
	if r.FlowCount != 3 || len(r.Ports) != 1 || r.Ports[0].Port != 8080 || r.Ports[0].Flows != 3 || r.Total.RawBytes != 3*200_500 {
		t.Fatalf("%+v", r.Ports)
	}
	// References may miss some bytes at the ends of what repeats.
	if e := r.Total.EarlierBytes; e > 400_000 || e < 398_000 || r.Total.WithinBytes != 0 || r.Total.WireBytes > 206_000 {
		t.Errorf("%+v", r.Total)
	}
}

// The order of packets, and that some come twice, changes nothing of what was carried.
func TestOrderAndRetransmissions(t *testing.T) {
	data := noise(5, 20_000)
	p := newPcap(t, "x.pcap")
	w := p.wire(80, 40000)
	w.open()
	at := w.next[fromClient] // sequence numbers pass 2^32 on the way
	for _, i := range []uint32{0, 2, 1, 1, 3, 5, 6, 4, 7, 0, 9, 8} {
		w.segment(fromClient, at+2000*i, "A", data[2000*i:2000*(i+1)])
	}
	// One overlaps what is there and what is new.
	w.segment(fromClient, at+19_000, "A", append(bytes.Clone(data[19_000:]), noise(6, 500)...))
	w.next[fromClient] = at + 20_500
	w.close()
	w.segment(fromClient, at+18_000, "A", data[18_000:]) // and one comes after the end
	p.done()
	f, c := one(t, estimate(t, p.path))
	if f.RawBytes != 20_500 || c.Gaps != 0 || c.OutOfOrder != 4 || c.Retransmitted < 3 {
		t.Errorf("%+v, %+v", f, c)
	}
}

func TestGapsAreTold(t *testing.T) {
	data := noise(5, 10_000)
	p := newPcap(t, "x.pcap")
	w := p.wire(80, 40000)
	w.open()
	w.send(fromClient, 1000, data[:4000])
	w.next[fromClient] += 3000 // the capture lost three packets
	w.send(fromClient, 1000, data[7000:])
	w.next[fromClient] += 500 // and the last one
	w.close()
	p.done()
	r := estimate(t, p.path)
	f, c := one(t, r)
	if f.RawBytes != 7000 || f.GapBytes != 3500 || c.Gaps != 2 || c.GapBytes != 3500 {
		t.Errorf("%+v, %+v", f, c)
	}
	var b strings.Builder
	r.Print(&b)
	if !strings.Contains(b.String(), "3.42 KiB missing in 2 places") {
		t.Errorf("not told in\n%s", b.String())
	}
}

func TestACaptureThatCutsPackets(t *testing.T) {
	p := newPcap(t, "x.pcap")
	p.snap = 14 + 20 + 20 + 400
	w := p.wire(80, 40000)
	w.open()
	w.send(fromClient, 1000, noise(5, 5000))
	w.close()
	p.done()
	f, c := one(t, estimate(t, p.path))
	if f.RawBytes != 5*400 || c.CutPackets != 5 || c.GapBytes != 5*600 {
		t.Errorf("%+v, %+v", f, c)
	}
}

func TestACaptureThatBeginsLateAndEndsEarly(t *testing.T) {
	p := newPcap(t, "x.pcap")
	w := p.wire(443, 40000)
	w.send(fromServer, 1000, noise(5, 5000)) // no SYN was seen, and the server is the first to be
	w.send(fromClient, 1000, noise(6, 1000))
	p.done()
	whole, err := os.ReadFile(p.path)
	if err != nil {
		t.Fatal(err)
	}
	f, c := one(t, estimate(t, write(t, "cut.pcap", whole[:len(whole)-10])))
	if f.RawBytes != 5000 || f.Server != "10.2.0.2:443" || c.Unestablished != 1 || !strings.Contains(c.Truncated, "ends in the middle of a packet") || c.Packets != 5 {
		t.Errorf("%+v, %+v", f, c)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(whole)
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if f, _ := one(t, estimate(t, write(t, "x.pcap.gz", packed.Bytes()))); f.RawBytes != 6000 {
		t.Errorf("compressed by gzip: %+v", f)
	}
}

func TestEncryptedFlowsAreToldApart(t *testing.T) {
	record := func(kind byte, n int) []byte {
		return append([]byte{kind, 3, 3, byte(n >> 8), byte(n)}, noise(kind, n)...)
	}
	hello := record(22, 300)
	hello[5] = 1
	p := newPcap(t, "x.pcap")
	tls, ssh, late, plain := p.wire(443, 40000), p.wire(22, 40001), p.wire(8443, 40002), p.wire(80, 40003)
	for _, w := range []*wire{tls, ssh, plain} {
		w.open()
	}
	tls.send(fromClient, 1000, hello)
	tls.send(fromServer, 1000, record(23, 16000))
	ssh.send(fromServer, 1000, []byte("SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n"))
	ssh.send(fromClient, 1000, noise(4, 3000))
	late.send(fromServer, 1000, record(23, 9000))
	plain.send(fromClient, 1000, []byte("GET / HTTP/1.1\r\n\r\n"))
	p.done()
	r := estimate(t, p.path)
	got := map[uint16]string{}
	for _, port := range r.Ports {
		got[port.Port] = port.Protocol
	}
	if got[443] != "TLS" || got[22] != "SSH" || got[8443] != "TLS" || got[80] != "" {
		t.Errorf("%v", got)
	}
	if want := r.Total.RawBytes - 18; r.EncryptedBytes != want {
		t.Errorf("%d bytes are encrypted, want %d", r.EncryptedBytes, want)
	}
	if !strings.Contains(r.Conclusion, "are encrypted (TLS, SSH)") {
		t.Errorf("the conclusion is %q", r.Conclusion)
	}
}
