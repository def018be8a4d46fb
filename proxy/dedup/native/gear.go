// SPDX-License-Identifier: Apache-2.0

package native

import "github.com/trunkline/trunkline/proxy/history"

const (
	gearWindow = 64 // bytes that the 64-bit hash remembers
	sampleMask = 0x7f << 57
)

// gear is the table of the rolling hash h' = 2h + gear[byte]: fixed pseudo-random numbers (splitmix64), the same in every
// version, since anchors are only compared within one process but benchmarks are compared between versions.
var gear = func() (t [256]uint64) {
	x := uint64(0x7472756e6b6c696e)
	for i := range t {
		x += 0x9e3779b97f4a7c15
		z := x
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		t[i] = z ^ z>>31
	}
	return t
}()

// warm returns the hash after data, of which only the last gearWindow bytes count.
func warm(h uint64, data []byte) uint64 {
	for _, b := range data[max(0, len(data)-gearWindow):] {
		h = h<<1 + gear[b]
	}
	return h
}

// scan rolls the hash over src[from:to] and appends an anchor where its upper seven bits are zero, one in 128 bytes. An anchor's
// At is the offset behind its last byte. A run of equal anchors, as constant data can give, is cut to its first.
func scan(h uint64, src []byte, from, to int, dst []history.Sample) (uint64, []history.Sample) {
	last := uint64(1)
	for i, b := range src[from:to] {
		h = h<<1 + gear[b]
		if h&sampleMask == 0 && h != last {
			dst = append(dst, history.Sample{Hash: h, At: from + i + 1})
			last = h
		}
	}
	return h, dst
}
