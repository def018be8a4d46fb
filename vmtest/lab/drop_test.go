// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/vmtest/lab/internal/drop"
)

// tcOK and tcShot are verdicts of a classifier.
const tcOK, tcShot = 0, 2

func loadDropper(t *testing.T) *drop.Dropper {
	t.Helper()
	testkit.NeedRoot(t)
	d, err := drop.Load()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// verdict is what the program says of a frame.
func verdict(t *testing.T, d *drop.Dropper, frame []byte) uint32 {
	t.Helper()
	v, err := d.Program().Run(&ebpf.RunOptions{Data: frame})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// tcpFrame is an Ethernet frame with a TCP segment that has this much payload and option bytes.
func tcpFrame(version, payload, ipOptions, tcpOptions int) []byte {
	tcp := make([]byte, 20+tcpOptions+payload)
	tcp[12] = byte(20+tcpOptions) / 4 << 4
	f := make([]byte, 14)
	if version == 6 {
		binary.BigEndian.PutUint16(f[12:], unix.ETH_P_IPV6)
		ip := make([]byte, 40)
		ip[0], ip[6] = 0x60, unix.IPPROTO_TCP
		binary.BigEndian.PutUint16(ip[4:], uint16(len(tcp)))
		return append(append(f, ip...), tcp...)
	}
	binary.BigEndian.PutUint16(f[12:], unix.ETH_P_IP)
	ip := make([]byte, 20+ipOptions)
	ip[0], ip[9] = 0x40|byte(20+ipOptions)/4, unix.IPPROTO_TCP
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)+len(tcp)))
	return append(append(f, ip...), tcp...)
}

// Both emulations lose the same packets, for any odds, and again after a restart.
func TestDropperLosesWhatTheProcessLoses(t *testing.T) {
	d := loadDropper(t)
	n := testkit.Count(4000, 1000)
	frame := tcpFrame(4, 100, 0, 0)
	run, total, lost := uint32(0), uint64(0), uint64(0)
	for _, c := range []struct {
		seed        uint64
		loss, burst float64
	}{{1, 0.01, 0}, {1, 0.01, 5}, {2, 0.5, 0}, {3, 0.3, 3}, {1, 0.01, 0}, {1, 0, 0}, {1, 1, 0}, {1<<64 - 1, 0.1, 1}} {
		t.Run(fmt.Sprintf("seed %d loss %g burst %g", c.seed, c.loss, c.burst), func(t *testing.T) {
			run++
			ch, o := chain{key: lossKey(c.seed, numberAB)}, newOdds(c.loss, c.burst)
			if err := d.Set(drop.Rule{Key: ch.key, AfterPassed: o.afterPassed, AfterLost: o.afterLost, Run: run}); err != nil {
				t.Fatal(err)
			}
			for i := range n {
				want := uint32(tcOK)
				if ch.lost(o) {
					want = tcShot
					lost++
				}
				total++
				if got := verdict(t, d, frame); got != want {
					t.Fatalf("packet %d: verdict %d, want %d", i, got, want)
				}
			}
		})
	}
	counts, err := d.Counts()
	if want := (drop.Counts{Packets: total, Bytes: total * uint64(len(frame)-14), Lost: lost}); err != nil || counts != want {
		t.Errorf("counted %+v (%v), want %+v", counts, err, want)
	}
}

func TestDropperSparesWhatIsNoData(t *testing.T) {
	d := loadDropper(t)
	certain := drop.Rule{AfterPassed: oddsAll, AfterLost: oddsAll, DataOnly: true}
	udp4, udp6 := tcpFrame(4, 100, 0, 0), tcpFrame(6, 100, 0, 0)
	udp4[14+9], udp6[14+6] = unix.IPPROTO_UDP, unix.IPPROTO_UDP
	fragment := tcpFrame(4, 100, 0, 0)
	fragment[14+7] = 1
	arp := tcpFrame(4, 100, 0, 0)
	binary.BigEndian.PutUint16(arp[12:], unix.ETH_P_ARP)
	padded := append(tcpFrame(4, 0, 0, 12), make([]byte, 20)...) // as short frames are
	for _, c := range []struct {
		name      string
		frame     []byte
		data, all uint32 // verdicts where only data is lost, and where everything is
	}{
		{"data", tcpFrame(4, 100, 0, 0), tcShot, tcShot},
		{"data, options", tcpFrame(4, 1, 8, 12), tcShot, tcShot},
		{"data, IPv6", tcpFrame(6, 1, 0, 12), tcShot, tcShot},
		{"acknowledgement", tcpFrame(4, 0, 0, 12), tcOK, tcShot},
		{"acknowledgement, options", tcpFrame(4, 0, 20, 40), tcOK, tcShot},
		{"acknowledgement, IPv6", tcpFrame(6, 0, 0, 12), tcOK, tcShot},
		{"acknowledgement, padded", padded, tcOK, tcShot},
		{"UDP", udp4, tcOK, tcShot},
		{"UDP, IPv6", udp6, tcOK, tcShot},
		{"fragment", fragment, tcOK, tcShot},
		{"cut", tcpFrame(4, 100, 0, 0)[:40], tcOK, tcShot},
		{"ARP", arp, tcOK, tcOK},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, r := range []struct {
				name string
				rule drop.Rule
				want uint32
			}{
				{"data only", certain, c.data},
				{"everything", drop.Rule{AfterPassed: oddsAll, AfterLost: oddsAll}, c.all},
				{"nothing", drop.Rule{}, tcOK},
				{"down", drop.Rule{Down: true}, c.all},
			} {
				if err := d.Set(r.rule); err != nil {
					t.Fatal(err)
				}
				if got := verdict(t, d, c.frame); got != r.want {
					t.Errorf("%s: verdict %d, want %d", r.name, got, r.want)
				}
			}
		})
	}
	if c, err := d.Counts(); err != nil || c.DownDrops != 11 {
		t.Errorf("%+v, %v: want 11 lost by the link that was down", c, err)
	}
}
