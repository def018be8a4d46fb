// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"fmt"
	"math"
	"time"

	"github.com/trunkline/trunkline/loader/policy"
)

// headerBytes are those of IP and TCP with timestamps, which every data segment on Linux carries: 20 + 20 + 12.
const headerBytes = 52

// maxScale is the largest shift of the window in RFC 7323, which bounds windows to 1 GiB.
const maxScale = 14

// Bounds of what a window is computed from: beyond, TCP's own window of 1 GiB is no more than a rounding error.
const (
	MinRTT = 100 * time.Microsecond
	MaxRTT = 10 * time.Second
)

// Tuning is what a path of a known rate and round-trip time needs of its ends.
type Tuning struct {
	RateBps     uint64    `json:"rate_Bps"`           // bytes per second, of the link layer
	RTTus       int64     `json:"rtt_us"`             // of the path without a queue
	WindowBytes uint64    `json:"window_bytes"`       // that fills the path: W = B x RTT (Noh and Ahn, 2009)
	BufferBytes uint64    `json:"buffer_bytes"`       // of a socket whose window is that: the kernel advertises half of a buffer
	WindowScale int       `json:"window_scale"`       // the shift that the SYN has to carry
	Segments    []Segment `json:"segments"`           // in flight, by MTU
	Limited     string    `json:"limited,omitempty"`  // why TCP cannot fill the path
	Since       time.Time `json:"since,omitzero"`     // in force; zero: computed only
	Prefixes    []string  `json:"prefixes,omitempty"` // it is in force for
}

// Segment is how many full segments a window holds at an MTU.
type Segment struct {
	MTU   int    `json:"mtu_bytes"`
	Count uint64 `json:"count"`
}

// TuningFor computes what a path needs; rateBps in bytes per second, rtt without a queue.
func TuningFor(rateBps uint64, rtt time.Duration) Tuning {
	t := Tuning{RateBps: rateBps, RTTus: rtt.Microseconds(), WindowBytes: policy.Reserved{RateBps: rateBps, RTT: rtt}.BDPBytes()}
	t.BufferBytes = 2 * t.WindowBytes
	for t.WindowScale < maxScale && 65535<<t.WindowScale < t.WindowBytes {
		t.WindowScale++
	}
	for _, mtu := range []int{1500, 9000} {
		mss := float64(mtu - headerBytes)
		t.Segments = append(t.Segments, Segment{mtu, uint64(math.Ceil(float64(t.WindowBytes) / mss))})
	}
	if most := uint64(65535 << maxScale); t.WindowBytes > most {
		share := float64(most) / float64(t.WindowBytes)
		t.Limited = fmt.Sprintf("one connection's window ends at 1 GiB (RFC 7323), %.0f %% of this path; use several", 100*share)
	}
	return t
}

// Sysctl is a line of a sysctl file, as an expert would write it for the path.
type Sysctl struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Why   string `json:"why"`
}

// Sysctls are the lines that a host needs so that any connection may fill the path: host-wide, for every connection.
func (t Tuning) Sysctls() []Sysctl {
	most := min(t.BufferBytes, math.MaxInt32)
	half := min(t.WindowBytes, math.MaxInt32/2) // of SO_RCVBUF and SO_SNDBUF, which the kernel doubles
	return []Sysctl{
		{"net.core.rmem_max", fmt.Sprint(max(half, 212992)), "what a program may ask for by SO_RCVBUF; it gets twice that"},
		{"net.core.wmem_max", fmt.Sprint(max(half, 212992)), "and by SO_SNDBUF"},
		{"net.ipv4.tcp_rmem", fmt.Sprintf("4096 131072 %d", max(most, 6291456)), "least, first and largest receive buffer; half of it is advertised"},
		{"net.ipv4.tcp_wmem", fmt.Sprintf("4096 16384 %d", max(most, 4194304)), "the same of the send buffer, which also counts headers"},
		{"net.ipv4.tcp_window_scaling", "1", "without it 64 KiB is the most"},
		{"net.ipv4.tcp_slow_start_after_idle", "0", "else a pause costs the window"},
	}
}
