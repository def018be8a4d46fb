// SPDX-License-Identifier: Apache-2.0

package native

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zstd"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// errRested tells that a part goes on with a stream whose state was given back.
var errRested = errors.New("the compressed stream was given up while the flow was idle")

// Decompressors that are not in use, by stage.
var decompressors = [2]sync.Pool{
	codec.Zstd: {New: func() any {
		r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderMaxMemory(64<<20))
		if err != nil {
			panic(fmt.Sprintf("making a zstd decoder: %v", err)) // the options are constants
		}
		return r
	}},
	codec.Zlib: {New: func() any { return flate.NewReader(&source{}) }},
}

// An unpacker is the receiving end of a leg's compressed stream.
type unpacker struct {
	stage codec.Stage
	live  bool
	r     io.Reader
	in    source
}

// begin begins the stream anew, primed with what both ends know. prime must not change while the stream lives.
func (u *unpacker) begin(stage codec.Stage, prime []byte) error {
	if u.r != nil && u.stage != stage {
		u.rest()
	}
	u.stage, u.live = stage, true
	u.in.fronts[0] = nil
	if u.r == nil {
		u.r = decompressors[stage].Get().(io.Reader)
	}
	var err error
	switch r := u.r.(type) {
	case *zstd.Decoder:
		if len(prime) == 0 {
			err = r.Reset(&u.in)
		} else {
			err = r.ResetWithOptions(&u.in, zstd.WithDecoderDictRaw(dictionary, prime))
		}
	case flate.Resetter:
		err = r.Reset(&u.in, prime)
	}
	if err != nil {
		return fmt.Errorf("beginning the compressed stream: %w", err)
	}
	return nil
}

// take fills dst with what the stream gives for a part; short says that the part is one zstd block without its header. The
// encoder flushes at the end of every part, so that all of it is used up then.
func (u *unpacker) take(dst, part []byte, short bool) error {
	if !u.live || short && u.stage != codec.Zstd {
		return errRested
	}
	u.in.set(part, u.stage, short)
	_, err := io.ReadFull(u.r, dst)
	if err == nil && u.in.left() > maxLeft(u.stage) {
		err = errFormat
	}
	if err != nil {
		u.live = false
		return fmt.Errorf("inflating literals: %w", err)
	}
	u.in.keep()
	return nil
}

// maxLeft is how many bytes of a part may be unread when all that it stands for has been read. Deflate's last block may end
// behind its last byte, and then there is the mark.
func maxLeft(stage codec.Stage) int {
	if stage == codec.Zlib {
		return keepMost
	}
	return 0
}

// rest gives the decompressor back.
func (u *unpacker) rest() {
	switch r := u.r.(type) {
	case *zstd.Decoder:
		_ = r.ResetWithOptions(nil, zstd.WithDecoderDictDelete())
		decompressors[codec.Zstd].Put(r)
	case flate.Resetter:
		_ = r.Reset(&source{}, nil)
		decompressors[codec.Zlib].Put(r)
	}
	*u = unpacker{}
}

// A source gives a decompressor the bytes that are there: what was left of the part before, what was left out of this one, it, and
// the mark behind it.
type source struct {
	kept   [keepMost]byte
	fronts [2][]byte
	part   []byte
	mark   []byte
	front  [blockHeader]byte
}

const keepMost = 16 // bytes

var markBytes = []byte(flushMark)

func (s *source) set(part []byte, stage codec.Stage, short bool) {
	s.part, s.mark, s.fronts[1] = part, nil, nil
	if stage == codec.Zlib {
		s.mark = markBytes
	}
	if short {
		h := zstdHeader(len(part))
		s.front = [blockHeader]byte{byte(h), byte(h >> 8), byte(h >> 16)}
		s.fronts[1] = s.front[:]
	}
}

func (s *source) left() int { return len(s.fronts[0]) + len(s.fronts[1]) + len(s.part) + len(s.mark) }

// keep takes what is left out of the caller's memory.
func (s *source) keep() {
	var all [keepMost]byte
	n, _ := s.Read(all[:])
	s.kept = all
	s.fronts[0], s.part = s.kept[:n], nil
}

// Read implements io.Reader.
func (s *source) Read(b []byte) (n int, err error) {
	for _, from := range [...]*[]byte{&s.fronts[0], &s.fronts[1], &s.part, &s.mark} {
		k := copy(b[n:], *from)
		*from = (*from)[k:]
		n += k
	}
	if n == 0 && len(b) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// ReadByte keeps the deflate library from reading ahead.
func (s *source) ReadByte() (byte, error) {
	var b [1]byte
	if _, err := s.Read(b[:]); err != nil {
		return 0, err
	}
	return b[0], nil
}
