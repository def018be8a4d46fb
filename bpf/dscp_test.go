// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/internal/testkit"
)

const testMarkBit = 0x10000000

// loadDSCPTest returns the program with its maps filled for the loopback device, which test runs go through.
func loadDSCPTest(t *testing.T) (*ebpf.Program, *ebpf.Map) {
	t.Helper()
	testkit.NeedRoot(t)
	spec, err := DSCP()
	if err != nil {
		t.Fatal(err)
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(coll.Close)
	if err := coll.Maps["tl_agent"].Put(uint32(0), Agent{Dscp: 10, MarkBit: testMarkBit}); err != nil {
		t.Fatal(err)
	}
	if err := coll.Maps["tl_iface"].Put(uint32(1), Iface{L2Bytes: 14}); err != nil {
		t.Fatal(err)
	}
	return coll.Programs["tl_dscp"], coll.Maps["tl_iface"]
}

// frame is an Ethernet frame with an IP header of this version and traffic class and 20 bytes behind it.
func frame(version int, class byte) []byte {
	f := make([]byte, 14)
	if version == 6 {
		binary.BigEndian.PutUint16(f[12:], unix.ETH_P_IPV6)
		ip := make([]byte, 40)
		binary.BigEndian.PutUint32(ip, 6<<28|uint32(class)<<20|0xabcde)
		binary.BigEndian.PutUint16(ip[4:], 20)
		ip[6], ip[7] = unix.IPPROTO_TCP, 64
		return append(append(f, ip...), make([]byte, 20)...)
	}
	binary.BigEndian.PutUint16(f[12:], unix.ETH_P_IP)
	ip := make([]byte, 20)
	ip[0], ip[1], ip[8], ip[9] = 0x45, class, 64, unix.IPPROTO_TCP
	binary.BigEndian.PutUint16(ip[2:], 40)
	binary.BigEndian.PutUint32(ip[12:], 0xc0000201)
	binary.BigEndian.PutUint32(ip[16:], 0xcb007109)
	binary.BigEndian.PutUint16(ip[10:], ^sum(ip))
	return append(append(f, ip...), make([]byte, 20)...)
}

func sum(b []byte) uint16 {
	s := uint32(0)
	for ; len(b) > 1; b = b[2:] {
		s += uint32(binary.BigEndian.Uint16(b))
	}
	for s > 0xffff {
		s = s&0xffff + s>>16
	}
	return uint16(s)
}

// classOf returns the traffic class of a frame.
func classOf(f []byte) byte {
	if f[14]>>4 == 6 {
		return byte(binary.BigEndian.Uint16(f[14:]) >> 4)
	}
	return f[15]
}

func TestDSCP(t *testing.T) {
	prog, ifaces := loadDSCPTest(t)
	marked := uint64(0)
	for _, version := range []int{4, 6} {
		for class := range 256 {
			for _, mark := range []uint32{0, 7, testMarkBit, testMarkBit | 7} {
				name := fmt.Sprintf("IPv%d class %#02x mark %#x", version, class, mark)
				in := frame(version, byte(class))
				ctx, ctxOut := make([]byte, 192), make([]byte, 192)
				binary.NativeEndian.PutUint32(ctx[8:], mark) // __sk_buff.mark
				out := make([]byte, len(in)+64)
				run := ebpf.RunOptions{Data: in, DataOut: out, Context: ctx, ContextOut: ctxOut}
				ret, err := prog.Run(&run)
				if err != nil {
					t.Fatal(err)
				}
				want := byte(class)
				if mark&testMarkBit != 0 {
					want = 10<<2 | byte(class)&3 // the code point changes, the ECN bits stay
					marked++
				}
				got := run.DataOut
				if int32(ret) != -1 || classOf(got) != want {
					t.Fatalf("%s: verdict %d, class %#02x, want %#02x", name, int32(ret), classOf(got), want)
				}
				if m := binary.NativeEndian.Uint32(ctxOut[8:]); m != mark&^testMarkBit {
					t.Fatalf("%s: mark %#x afterwards", name, m)
				}
				if version == 4 && sum(got[14:34]) != 0xffff {
					t.Fatalf("%s: header checksum is wrong", name)
				}
				plain := frame(version, want)
				if string(plain) != string(got) {
					t.Fatalf("%s: more than the class changed:\n%x\n%x", name, got, plain)
				}
			}
		}
	}
	var i Iface
	if err := ifaces.Lookup(uint32(1), &i); err != nil {
		t.Fatal(err)
	}
	if i.Marked != marked || i.Seen != 2*256*4 {
		t.Errorf("marked %d of %d seen, want %d of %d", i.Marked, i.Seen, marked, 2*256*4)
	}
}
