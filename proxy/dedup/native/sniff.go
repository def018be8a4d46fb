// SPDX-License-Identifier: Apache-2.0

package native

import "bytes"

// A sniffer recognises protocols whose bytes are encrypted from how a flow begins.
type sniffer struct {
	start   []byte
	decided bool
	found   bool
}

const sniffBytes = 8

// encrypted takes the flow's next bytes and tells whether it is known to be encrypted.
func (s *sniffer) encrypted(src []byte) bool {
	if s.decided {
		return s.found
	}
	s.start = append(s.start, src[:min(len(src), sniffBytes-len(s.start))]...)
	s.decided = len(s.start) == sniffBytes
	s.found = s.decided && (isTLS(s.start) || bytes.Equal(s.start, []byte("SSH-2.0-")))
	return s.found
}

// isTLS recognises a handshake record that holds a client's or a server's hello.
func isTLS(b []byte) bool {
	record := int(b[3])<<8 | int(b[4])
	hello := b[5] == 1 || b[5] == 2
	return b[0] == 0x16 && b[1] == 0x03 && b[2] <= 0x04 && record >= 4 && record <= 1<<14+2048 && hello
}

// A backoff spares literals that do not compress the attempt: after each failure it passes over twice as much, up to 32 times
// what failed, and then tries again. It counts bytes, so that a few odd bytes do not decide over a large block.
type backoff struct {
	skip     int // literal bytes to pass over
	failures int
}

const (
	tooShort  = 16      // bytes that cannot gain from the stream
	mostSkips = 8 << 20 // bytes
)

// try tells whether to compress n bytes.
func (b *backoff) try(n int) bool {
	if n < tooShort {
		return false
	}
	if n < b.skip {
		b.skip -= n
		return false
	}
	return true
}

// result tells what came of n bytes.
func (b *backoff) result(n, out int) {
	b.skip = 0
	if out < n-n/32 {
		b.failures = 0
		return
	}
	b.failures = min(b.failures+1, 5)
	b.skip = min(n<<b.failures, mostSkips)
}
