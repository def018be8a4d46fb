// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"testing"
	"time"
)

// stamped is a segment with 100 bytes of payload and these options, whose length is a multiple of four.
func stamped(t *testing.T, port uint16, options ...byte) *packet {
	t.Helper()
	raw := make([]byte, vnetHeader+20+20+len(options)+100)
	ip := raw[vnetHeader:]
	ip[0], ip[9] = 0x45, protoTCP
	binary.BigEndian.PutUint16(ip[20:], port)
	ip[20+12] = byte(5+len(options)/4) << 4
	copy(ip[40:], options)
	p, ok := parse(raw)
	if !ok || !p.tcp || p.payload() != 100 {
		t.Fatalf("the packet is %+v", p)
	}
	return &p
}

func TestStamp(t *testing.T) {
	for _, c := range []struct {
		name    string
		options []byte
		want    uint32
		ok      bool
	}{
		{"none", nil, 0, false},
		{"as Linux writes it", []byte{1, 1, 8, 10, 0, 0, 1, 2, 9, 9, 9, 9}, 258, true},
		{"behind another", []byte{2, 4, 5, 180, 1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 0}, 7, true},
		{"behind the end", []byte{0, 0, 8, 10, 0, 0, 0, 7, 0, 0, 0, 0}, 0, false},
		{"cut off", []byte{1, 1, 8, 10}, 0, false},
		{"of no length", []byte{5, 0, 1, 1}, 0, false},
	} {
		if got, ok := stamped(t, 1, c.options...).stamp(); got != c.want || ok != c.ok {
			t.Errorf("%s: %d, %v", c.name, got, ok)
		}
	}
}

// The quickest packet of a connection is the measure of the others, and stamps may go around.
func TestWaited(t *testing.T) {
	start, tr := time.UnixMilli(1_000_000), newTruth(0)
	at := func(port uint16, ms uint32, after time.Duration) time.Duration {
		b := binary.BigEndian.AppendUint32([]byte{1, 1, 8, 10}, ms)
		return tr.waited(stamped(t, port, append(b, 0, 0, 0, 0)...), start.Add(after*time.Millisecond))
	}
	for i, c := range []struct {
		port  uint16
		ms    uint32
		after time.Duration
		want  time.Duration
	}{
		{1, 1<<32 - 5, 10, 0}, {1, 5, 20, 0}, {1, 10, 45, 20}, {1, 50, 55, 0}, {1, 60, 75, 10}, // the fourth came 10 ms sooner than the first
		{2, 7, 80, 0}, {2, 8, 90, 9},
	} {
		if got := at(c.port, c.ms, c.after); got != c.want*time.Millisecond {
			t.Errorf("packet %d waited %v, want %d ms", i, got, c.want)
		}
	}
}
