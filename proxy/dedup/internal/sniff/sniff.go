// SPDX-License-Identifier: Apache-2.0

// Package sniff finds out what a flow's bytes are not worth: flows that are encrypted, from how they begin, and bytes that do
// not compress, by trying ever less often.
package sniff

import "bytes"

// A Sniffer recognises protocols whose bytes are encrypted from how a flow begins. The zero Sniffer is ready.
type Sniffer struct {
	start   []byte
	decided bool
	found   bool
}

const sniffBytes = 8

// Encrypted takes the flow's next bytes and tells whether it is known to be encrypted.
func (s *Sniffer) Encrypted(src []byte) bool {
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

// A Backoff spares bytes that do not compress the attempt: after each failure it passes over twice as much, up to 32 times
// what failed, and then tries again. It counts bytes, so that a few odd bytes do not decide over a large block. The zero
// Backoff is ready.
type Backoff struct {
	skip     int // bytes to pass over
	failures int
}

// Limits of a Backoff in bytes.
const (
	TooShort  = 16      // fewer cannot gain from a compressor
	mostSkips = 8 << 20 // passed over at most
)

// Try tells whether to compress n bytes.
func (b *Backoff) Try(n int) bool {
	if n < TooShort {
		return false
	}
	if n < b.skip {
		b.skip -= n
		return false
	}
	return true
}

// Result tells what came of n bytes.
func (b *Backoff) Result(n, out int) {
	b.skip = 0
	if out < n-n/32 {
		b.failures = 0
		return
	}
	b.failures = min(b.failures+1, 5)
	b.skip = min(n<<b.failures, mostSkips)
}
