// SPDX-License-Identifier: Apache-2.0

package sniff

import "testing"

func TestBackoff(t *testing.T) {
	var b Backoff
	tried := 0
	for range 100 << 20 / 10_000 { // 100 MiB that do not compress
		if b.Try(10_000) {
			tried++
			b.Result(10_000, 10_003)
		}
	}
	if tried < 50 || tried > 400 {
		t.Errorf("%d of 10485 attempts", tried)
	}
	b = Backoff{}
	for range 1000 {
		if b.Try(50) {
			b.Result(50, 53)
		}
	}
	if !b.Try(10_000) {
		t.Error("a few odd bytes keep a large block from being compressed")
	}
	if b.Try(TooShort - 1) {
		t.Error("a few bytes are compressed")
	}
}

func TestSniffer(t *testing.T) {
	for _, c := range []struct {
		name  string
		begin string
		want  bool
	}{
		{"TLS client", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc", true},
		{"SSH", "SSH-2.0-OpenSSH_9.2\r\n", true},
		{"HTTP", "GET / HTTP/1.1\r\n", false},
		{"TLS alert", "\x15\x03\x01\x00\x02\x02\x28\x00\x00", false},
	} {
		var whole, pieces Sniffer
		got := whole.Encrypted([]byte(c.begin))
		for i := range c.begin {
			pieces.Encrypted([]byte(c.begin[i : i+1]))
		}
		if got != c.want || pieces.Encrypted([]byte("x")) != c.want {
			t.Errorf("%s: %v, in pieces %v", c.name, got, !got)
		}
	}
}
