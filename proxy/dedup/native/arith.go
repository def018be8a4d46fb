// SPDX-License-Identifier: Apache-2.0

package native

// Bits are coded by halving an interval of 32-bit numbers in the proportion that the model says; the leading bytes on which
// both ends of the interval agree go out. A part ends with the shortest number that lies in the last interval, zeros behind
// it left out.

// split gives the last number of the interval's part that stands for a one.
func split(low, high uint32, p int32) uint32 {
	return low + uint32(uint64(high-low)*uint64(max(1, min(p, 4095)))>>12)
}

// encode appends what stands for src to dst.
func (m *model) encode(dst, src []byte) []byte {
	low, high := uint32(0), ^uint32(0)
	start := len(dst)
	for _, b := range src {
		m.begin()
		for i := 7; i >= 0; i-- {
			m.predict()
			bit := int32(b>>i) & 1
			if mid := split(low, high, m.p); bit == 1 {
				high = mid
			} else {
				low = mid + 1
			}
			m.learn(bit)
			for low>>24 == high>>24 {
				dst = append(dst, byte(low>>24))
				low, high = low<<8, high<<8|0xff
			}
		}
		m.end(b)
	}
	for shift := 32; low > 0; { // the first of the numbers with the fewest bytes
		shift -= 8
		if v := (uint64(low) + 1<<shift - 1) >> shift << shift; v <= uint64(high) {
			for at := 24; at >= shift; at -= 8 {
				dst = append(dst, byte(v>>at))
			}
			break
		}
	}
	for len(dst) > start && dst[len(dst)-1] == 0 {
		dst = dst[:len(dst)-1]
	}
	return dst
}

// decode fills dst with what a part stands for. Any part stands for something.
func (m *model) decode(dst, part []byte) {
	low, high, v := uint32(0), ^uint32(0), uint32(0)
	next := func() {
		v <<= 8
		if len(part) > 0 {
			v |= uint32(part[0])
			part = part[1:]
		}
	}
	for range 4 {
		next()
	}
	for k := range dst {
		m.begin()
		for range 8 {
			m.predict()
			mid, bit := split(low, high, m.p), int32(0)
			if v <= mid {
				high, bit = mid, 1
			} else {
				low = mid + 1
			}
			m.learn(bit)
			for low>>24 == high>>24 {
				low, high = low<<8, high<<8|0xff
				next()
			}
		}
		dst[k] = byte(m.node)
		m.end(dst[k])
	}
}
