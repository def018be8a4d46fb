// SPDX-License-Identifier: Apache-2.0

package native

import (
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zstd"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// Bytes that zstd looks back, by effort: more costs memory at both ends, and what lies farther back the history finds. All are
// at most maxWindow, which is what a decoder grants.
var windows = [codec.Efforts]int{codec.EffortFastest: 2 << 20, codec.EffortDefault: 4 << 20, codec.EffortBetter: 4 << 20}

const maxWindow = 8 << 20

var (
	zstdLevels  = [codec.Efforts]zstd.EncoderLevel{codec.EffortFastest: zstd.SpeedFastest, codec.EffortDefault: zstd.SpeedDefault, codec.EffortBetter: zstd.SpeedBetterCompression}
	flateLevels = [codec.Efforts]int{codec.EffortFastest: 1, codec.EffortDefault: 6, codec.EffortBetter: 9}
)

// dictionary is the number of the raw dictionary that a primed zstd stream names in its header.
const dictionary = 1

// A compressor is what the libraries' writers have in common.
type compressor interface {
	io.Writer
	Flush() error
	Reset(io.Writer)
}

// compressors that are not in use, by stage, effort, and whether they take a dictionary: that is another kind of zstd encoder.
var compressors [2][codec.Efforts][2]sync.Pool

func newZstd(effort codec.Effort, more ...zstd.EOption) *zstd.Encoder {
	options := append(more, zstd.WithEncoderLevel(zstdLevels[effort]), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(windows[effort]), zstd.WithEncoderCRC(false))
	w, err := zstd.NewWriter(nil, options...)
	if err != nil {
		panic(fmt.Sprintf("making a zstd encoder: %v", err)) // the options are constants
	}
	return w
}

func newFlate(effort codec.Effort) *flate.Writer {
	w, err := flate.NewWriter(io.Discard, flateLevels[effort])
	if err != nil {
		panic(fmt.Sprintf("making a deflate encoder: %v", err))
	}
	return w
}

// A packer is the sending end of a leg's compressed stream.
type packer struct {
	stage  codec.Stage
	effort codec.Effort // of w
	primed bool         // w takes dictionaries
	live   bool         // the stream has begun
	w      compressor
	out    []byte
}

// Write takes what the compressor gives.
func (p *packer) Write(b []byte) (int, error) {
	p.out = append(p.out, b...)
	return len(b), nil
}

// goesOn tells whether the next part goes on with the stream; else begin comes first.
func (p *packer) goesOn(effort codec.Effort) bool { return p.live && p.effort == effort }

// begin begins the stream anew, primed with what both ends know.
func (p *packer) begin(effort codec.Effort, prime []byte) {
	if p.w != nil && (p.effort != effort || p.stage == codec.Zstd && p.primed != (len(prime) > 0)) {
		p.rest()
	}
	p.effort, p.primed, p.live = effort, len(prime) > 0, true
	if p.w == nil {
		p.w, _ = p.pool().Get().(compressor)
	}
	if p.stage == codec.Zlib {
		p.beginFlate(prime)
		return
	}
	var w *zstd.Encoder
	switch {
	case p.w != nil:
		w = p.w.(*zstd.Encoder)
	case p.primed:
		w = newZstd(effort, zstd.WithEncoderDictRaw(dictionary, prime))
	default:
		w = newZstd(effort)
	}
	if p.w = w; !p.primed {
		w.Reset(p)
	} else if err := w.ResetWithOptions(p, zstd.WithEncoderDictRaw(dictionary, prime)); err != nil {
		panic(fmt.Sprintf("priming a zstd encoder: %v", err)) // any dictionary will do
	}
}

func (p *packer) beginFlate(prime []byte) {
	w, ok := p.w.(*flate.Writer)
	if !ok {
		w = newFlate(p.effort)
	}
	p.w = w
	w.ResetDict(p, prime) // Reset would prime it as it was before
}

// add appends to dst what the stream gives for data, flushed.
func (p *packer) add(dst, data []byte) []byte {
	p.out = dst
	// Neither can fail: the writer is a slice in memory.
	_, _ = p.w.Write(data)
	_ = p.w.Flush()
	dst, p.out = p.out, nil
	if p.stage == codec.Zlib {
		dst = dst[:len(dst)-len(flushMark)]
	}
	return dst
}

// rest gives the compressor back.
func (p *packer) rest() {
	if p.w != nil {
		p.pool().Put(p.w)
	}
	*p = packer{stage: p.stage}
}

func (p *packer) pool() *sync.Pool {
	primed := 0
	if p.primed && p.stage == codec.Zstd {
		primed = 1
	}
	return &compressors[p.stage][p.effort][primed]
}

// flushMark ends each flush of a deflate stream. Both ends know that, so it is not sent.
const flushMark = "\x00\x00\xff\xff"

// blockHeader is what precedes a block of a zstd stream, and what of it is left out where a part is one compressed block.
const blockHeader = 3

// shorten takes the header off a part that is one compressed block of a zstd stream.
func shorten(part []byte) ([]byte, bool) {
	if len(part) < blockHeader {
		return part, false
	}
	h := uint32(part[0]) | uint32(part[1])<<8 | uint32(part[2])<<16
	if h != zstdHeader(len(part)-blockHeader) {
		return part, false
	}
	return part[blockHeader:], true
}

// zstdHeader is the header of a compressed block of n bytes that is not the last.
func zstdHeader(n int) uint32 { return uint32(n)<<3 | 2<<1 }
