// SPDX-License-Identifier: Apache-2.0

// Package stage is the second stage of codecs that compress all they give out: one zstd or deflate stream per flow and
// direction, flushed with each payload. Compressors cost hundreds of KiB, so they come from pools and are given back when
// a flow rests; the stream then begins anew, and the part that begins it says so.
package stage

import (
	"errors"
	"io"
	"sync"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// A compressor is what the libraries' writers have in common.
type compressor interface {
	io.Writer
	Flush() error
	Reset(io.Writer)
}

// A Packer is the sending end of a stream. The zero Packer packs nothing; see NewPacker. It belongs to one goroutine at a time.
type Packer struct {
	kind  codec.Stage
	level codec.Effort // of w
	w     compressor
	out   []byte
	live  bool // the stream has begun
}

// NewPacker makes the sending end of a stream of a kind.
func NewPacker(kind codec.Stage) Packer { return Packer{kind: kind} }

// Level gives the effort that packing is worth at an effort; packs is false where nothing is packed.
func (p *Packer) Level(e codec.Effort) (level codec.Effort, packs bool) {
	return min(e, codec.EffortBetter), p.kind != codec.StageNone && e >= codec.EffortFastest
}

// Pack appends the part of the stream that stands for data to dst. Another effort than the last one's begins the stream anew.
func (p *Packer) Pack(dst, data []byte, effort codec.Effort) (out []byte, fresh bool) {
	if p.w != nil && p.level != effort {
		p.Rest()
	}
	if p.w == nil {
		p.w, p.level = compressors(p.kind, effort).Get().(compressor), effort
	}
	if fresh = !p.live; fresh {
		p.w.Reset(writer{p})
		p.live = true
	}
	p.out = dst
	// Neither can fail: what is written to is a slice in memory.
	_, _ = p.w.Write(data)
	_ = p.w.Flush()
	out, p.out = p.out, nil
	if p.kind == codec.Zlib {
		out = out[:len(out)-len(syncMark)]
	}
	return out, fresh
}

// Restart begins the stream anew with the next part.
func (p *Packer) Restart() { p.live = false }

// Rest gives the compressor back. The next part begins the stream anew.
func (p *Packer) Rest() {
	if p.w != nil {
		p.w.Reset(nil)
		compressors(p.kind, p.level).Put(p.w)
	}
	p.w, p.live = nil, false
}

// A writer keeps Write out of the Packer's own methods.
type writer struct{ p *Packer }

func (w writer) Write(b []byte) (int, error) {
	w.p.out = append(w.p.out, b...)
	return len(b), nil
}

// Errors of Unpack.
var (
	ErrNotBegun = errors.New("the compressed stream was not seen from its beginning")
	ErrFormat   = errors.New("malformed compressed data")
)

// A decompressor reads a stream from a source.
type decompressor interface {
	io.Reader
	restart(io.Reader) error
	// rest keeps what a read has left of a part for the next one, if that may be.
	rest(*source) error
}

// An Unpacker is the receiving end of a stream. It belongs to one goroutine at a time.
type Unpacker struct {
	kind codec.Stage
	r    decompressor
	in   source
	live bool
}

// NewUnpacker makes the receiving end of a stream of a kind.
func NewUnpacker(kind codec.Stage) Unpacker { return Unpacker{kind: kind} }

// Unpack fills dst with what a part of the stream stands for; fresh is what Pack said. After an error the stream is of no use
// until it begins anew.
func (u *Unpacker) Unpack(dst, part []byte, fresh bool) error {
	if u.kind == codec.StageNone {
		return ErrFormat
	}
	if !u.live && !fresh {
		return ErrNotBegun
	}
	if u.r == nil {
		u.r = decompressors(u.kind).Get().(decompressor)
	}
	u.in.next = part
	if u.kind == codec.Zlib {
		u.in.mark = syncMark
	}
	err := u.unpack(dst, fresh)
	u.live = err == nil
	u.in.next, u.in.mark = nil, nil
	return err
}

func (u *Unpacker) unpack(dst []byte, fresh bool) error {
	if fresh {
		u.in.left = u.in.left[:0]
		if err := u.r.restart(&u.in); err != nil {
			return errors.Join(ErrFormat, err)
		}
	}
	if _, err := io.ReadFull(u.r, dst); err != nil {
		return errors.Join(ErrFormat, err)
	}
	return u.r.rest(&u.in)
}

// Rest gives the decompressor back. The stream is of no use until it begins anew.
func (u *Unpacker) Rest() {
	if u.r != nil {
		_ = u.r.restart(&source{})
		decompressors(u.kind).Put(u.r)
	}
	*u = Unpacker{kind: u.kind}
}

// A source is the bytes of a stream that are there.
type source struct {
	left []byte // of the part before, in keep
	keep [maxLeft]byte
	next []byte // the part
	mark []byte // what stands behind each part and is not sent
}

func (s *source) Read(b []byte) (n int, err error) {
	for _, from := range []*[]byte{&s.left, &s.next, &s.mark} {
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
	from := &s.left
	if len(*from) == 0 {
		from = &s.next
	}
	if len(*from) == 0 {
		from = &s.mark
	}
	if len(*from) == 0 {
		return 0, io.EOF
	}
	b := (*from)[0]
	*from = (*from)[1:]
	return b, nil
}

func (s *source) size() int { return len(s.left) + len(s.next) + len(s.mark) }

// pools keeps one pool for each kind and effort.
type pools [3][codec.Efforts]sync.Pool

var packers, unpackers pools

func compressors(kind codec.Stage, e codec.Effort) *sync.Pool {
	p := &packers[kind][e]
	return p
}

func decompressors(kind codec.Stage) *sync.Pool { return &unpackers[kind][0] }

func init() {
	for e := codec.EffortFastest; e < codec.Efforts; e++ {
		packers[codec.Zstd][e].New = func() any { return newZstd(e) }
		packers[codec.Zlib][e].New = func() any { return newDeflate(e) }
	}
	unpackers[codec.Zstd][0].New = func() any { return newZstdReader() }
	unpackers[codec.Zlib][0].New = func() any { return &inflater{} }
}
