// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
)

// ServeCommand is the hidden command by which the executable is the server.
const ServeCommand = "bench-relay-serve" // bench-relay-serve ADDRESS

// A request is a kind of data, the seed that it follows from, and how many bytes. The server says when it has them ready, and
// sends them when it is told to: what making them takes is not measured.
const requestBytes = 1 + 8 + 8

const (
	kindNoise = byte(iota) // does not compress
	kindText               // words
	kindEcho               // the bytes that follow the request come back
)

const readyByte, goByte = 'r', 'g'

// maxBytes bounds a request: what follows from a seed is held in memory.
const maxBytes = 1 << 30

// ServeMain is the command ServeCommand. It prints a line when it listens, and serves until it is killed.
func ServeMain(args []string, stdout io.Writer) error {
	l, err := listen(args[0])
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, "ready")
	for {
		c, err := l.Accept()
		if err != nil {
			return fmt.Errorf("serving on %s: %w", args[0], err)
		}
		go func() {
			defer c.Close()
			_ = answer(c) // a client that goes away knows why
		}()
	}
}

// answer serves requests until the client ends.
func answer(c net.Conn) error {
	var head [requestBytes]byte
	for {
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return err
		}
		seed, n := binary.BigEndian.Uint64(head[1:]), binary.BigEndian.Uint64(head[9:])
		if n > maxBytes {
			return fmt.Errorf("a request for %d bytes, at most %d", n, maxBytes)
		}
		if head[0] == kindEcho {
			buf := make([]byte, n)
			if _, err := io.ReadFull(c, buf); err != nil {
				return err
			}
			if _, err := c.Write(buf); err != nil {
				return err
			}
			continue
		}
		if err := answerData(c, makeData(head[0], seed, int(n))); err != nil {
			return err
		}
	}
}

func answerData(c net.Conn, data []byte) error {
	var b [1]byte
	if _, err := c.Write([]byte{readyByte}); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, b[:]); err != nil {
		return err
	}
	_, err := c.Write(data)
	return err
}

// makeData gives the bytes of a kind that follow from a seed.
func makeData(kind byte, seed uint64, n int) []byte {
	var key [32]byte
	binary.BigEndian.PutUint64(key[:], seed)
	if kind == kindNoise {
		data := make([]byte, n)
		_, _ = rand.NewChaCha8(key).Read(data) // never fails
		return data
	}
	r := rand.New(rand.NewChaCha8(key))
	const letters = "eeeeeeetttttaaaaooooiiiinnnnsssshhhrrrddlllucmwfgypbvk"
	words := make([][]byte, 4096)
	for i := range words {
		words[i] = make([]byte, 2+r.IntN(9), 16)
		for j := range words[i] {
			words[i][j] = letters[r.IntN(len(letters))]
		}
		words[i] = append(words[i], ' ')
	}
	data := make([]byte, 0, n+16)
	for len(data) < n {
		data = append(data, words[int(r.ExpFloat64()*400)%len(words)]...)
	}
	return data[:n]
}
