// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// estimate runs and checks what has to be so whatever the data is.
func estimate(t *testing.T, paths ...string) *Result {
	t.Helper()
	r, err := Run(Options{Paths: paths, History: 64 << 20, Stderr: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	sums := []Sums{r.Total}
	all := Sums{}
	for _, f := range r.Files {
		sums = append(sums, f.Sums)
		all.add(f.Sums)
	}
	for _, p := range r.Ports {
		sums = append(sums, p.Sums)
		all.add(p.Sums)
	}
	if all != r.Total {
		t.Errorf("the parts make %+v, the total is %+v", all, r.Total)
	}
	for _, s := range sums {
		if int64(s.RawBytes) != int64(s.WithinBytes+s.EarlierBytes+s.WireBytes)+s.CompressedBytes {
			t.Errorf("%+v does not add up", s)
		}
	}
	var b strings.Builder
	r.Print(&b)
	for line := range strings.Lines(b.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 100 && !strings.Contains(line, t.TempDir()[:8]) {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	return r
}

func write(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFilesTellWhereBytesWent(t *testing.T) {
	new1, new2 := noise(1, 3<<20), noise(2, 1<<20)
	first := write(t, "first", new1)
	// Half of it comes from the first file, a quarter is new, and a quarter repeats that.
	second := write(t, "second", bytes.Join([][]byte{new1[:2<<20], new2, new2}, nil))
	r := estimate(t, first, second)
	a, b := r.Files[0], r.Files[1]
	if a.RawBytes != 3<<20 || a.WithinBytes+a.EarlierBytes != 0 || a.WireBytes < 3<<20 || a.Reason != "incompressible" {
		t.Errorf("the first: %+v", a)
	}
	const edge = 4 << 10 // bytes that a reference may miss at its ends
	near := func(got uint64, want int) bool { return got <= uint64(want) && got+edge >= uint64(want) }
	if b.RawBytes != 4<<20 || !near(b.EarlierBytes, 2<<20) || !near(b.WithinBytes, 1<<20) || b.WireBytes < 1<<20 || b.WireBytes > 1<<20+2*edge {
		t.Errorf("the second: %+v", b)
	}
	if !strings.Contains(r.Conclusion, "are repeats") {
		t.Errorf("the conclusion is %q", r.Conclusion)
	}
}

func TestAFilesTextCompresses(t *testing.T) {
	var text bytes.Buffer
	for i := range 20000 {
		fmt.Fprintf(&text, "%d bottles of beer on the wall %x\n", i, i*2654435761)
	}
	r := estimate(t, write(t, "text", text.Bytes()))
	if f := r.Files[0]; f.CompressedBytes < int64(f.RawBytes)/2 || f.WithinBytes+f.EarlierBytes > f.RawBytes/10 || !strings.Contains(r.Conclusion, "compression saves") {
		t.Errorf("%+v, %s", f, r.Conclusion)
	}
}

func TestADirectoryAndStandardInput(t *testing.T) {
	dir := t.TempDir()
	for name, data := range map[string][]byte{"b": noise(1, 100_000), "a/x": noise(1, 100_000), "empty": nil, ".hidden": noise(3, 10)} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := estimate(t, dir)
	if r.FileCount != 2 || r.Empty != 1 || !strings.HasSuffix(r.Files[0].Path, "a/x") || r.Files[1].EarlierBytes < 99_000 {
		t.Errorf("%+v", r)
	}
	r, err := Run(Options{Paths: []string{"-"}, History: 1 << 20, Stdin: bytes.NewReader(noise(1, 5000)), Stderr: io.Discard})
	if err != nil || r.Total.RawBytes != 5000 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestMistakesAreNamed(t *testing.T) {
	udp := newPcap(t, "udp.pcap")
	udp.packet(&layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, EthernetType: layers.EthernetTypeARP},
		gopacket.Payload(make([]byte, 60)))
	udp.done()
	pcap, err := os.ReadFile(udp.path)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, c := range []struct{ path, want string }{
		{"/nowhere/x", "/nowhere/x: no such file or directory"},
		{write(t, "empty", nil), "empty is empty"},
		{write(t, "text.pcap", []byte("hello, world")), "text.pcap is not a capture: it begins neither as pcap nor as pcapng; --plain takes it as any file"},
		{write(t, "short.pcap", pcap[:20]), "it begins as a capture and is none, or ends in its header"},
		{write(t, "short.pcapng", pcapNGMagic), "it begins as a capture and is none, or ends in its header"},
		{udp.path, "no bytes were carried by TCP in its 1 packet, 1 of them not TCP"},
		{dir, "there is no file in " + dir},
	} {
		_, err := Run(Options{Paths: []string{c.path}, History: 1 << 20, Stderr: io.Discard})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.path, err, c.want)
		}
	}
	for _, path := range []string{udp.path, write(t, "text.pcap", pcap[10:])} {
		r, err := Run(Options{Paths: []string{path}, History: 1 << 20, Plain: true, Stderr: io.Discard})
		if err != nil || r.FileCount != 1 {
			t.Errorf("as any file: %v", err)
		}
	}
}

func TestManyFlowsHaveFewLanes(t *testing.T) {
	p := newPcap(t, "many.pcap")
	var all []*wire
	for i := range 3 * mostLanes {
		w := p.wire(80, uint16(20000+i))
		w.open()
		all = append(all, w)
	}
	for part := range 2 {
		for i, w := range all {
			w.send(fromClient, 1000, noise(byte(i), 2000)[1000*part:1000*(part+1)])
			p.now = p.now.Add(time.Second)
		}
	}
	p.done()
	r := estimate(t, p.path)
	if r.FlowCount != len(all) || r.Total.RawBytes != uint64(2000*len(all)) || r.Ports[0].Flows != len(all) {
		t.Errorf("%d flows, %d bytes", r.FlowCount, r.Total.RawBytes)
	}
}
