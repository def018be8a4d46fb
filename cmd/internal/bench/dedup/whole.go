// SPDX-License-Identifier: Apache-2.0

package dedup

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// compressor is what a file is compressed with as a whole, for comparison: the same library as the second stage's.
type compressor struct {
	codec string
	level int          // the command's
	as    codec.Effort // the effort of the engine that has this level; raw: none has
}

// compressors; 1 is the fastest level alone.
var compressors = []compressor{
	{"zlib", 6, codec.EffortRaw}, {"zstd", 1, codec.EffortFastest}, {"zstd", 3, codec.EffortDefault}, {"zstd", 6, codec.EffortBetter},
}

// whole compresses a file, and decompresses it again to see that all is there. What the library and the buffers need only once is
// made before the time is taken: it is no part of a codec's cost either, which the flows of an agent share.
func (w *workbench) whole(c compressor, data []byte) (p passed, err error) {
	pack, unpack := w.tools(c)
	w.packed = pack(data[:min(len(data), 1<<20)], w.sized(&w.packed, len(data)+len(data)/8+1024))
	out := w.sized(&w.out, len(data)+bytes.MinRead)
	p = passed{raw: len(data), blocks: 1}
	p.encode = timed(func() { w.packed = pack(data, w.packed[:0]) })
	p.wire = len(w.packed)
	p.decode = timed(func() { out, err = unpack(w.packed, out) })
	if err == nil && !bytes.Equal(out, data) {
		err = errors.New("other bytes came out than went in")
	}
	if err != nil {
		return p, fmt.Errorf("decompressing %s -%d: %w", c.codec, c.level, err)
	}
	return p, nil
}

// workbench holds what compressors use again.
type workbench struct {
	zstd        map[int]*zstd.Encoder // by level
	unzstd      *zstd.Decoder
	packed, out []byte
}

// sized returns an empty slice with room for n bytes that have been written to before.
func (w *workbench) sized(b *[]byte, n int) []byte {
	if cap(*b) < n {
		*b = bytes.Repeat([]byte{1}, n)
	}
	return (*b)[:0]
}

type packing func(src, dst []byte) []byte
type unpacking func(src, dst []byte) ([]byte, error)

func (w *workbench) tools(c compressor) (packing, unpacking) {
	if c.codec == "zlib" {
		return c.zlib, unzlib
	}
	if w.zstd == nil {
		w.zstd = map[int]*zstd.Encoder{}
		w.unzstd = must(zstd.NewReader(nil, zstd.WithDecoderConcurrency(1)))
	}
	if w.zstd[c.level] == nil {
		w.zstd[c.level] = must(zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(c.level)), zstd.WithEncoderConcurrency(1),
			zstd.WithEncoderCRC(false)))
	}
	return w.zstd[c.level].EncodeAll, w.unzstd.DecodeAll
}

// must is for what fails only if its options are wrong, and they are constants.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (c compressor) zlib(src, dst []byte) []byte {
	out := bytes.NewBuffer(dst)
	w := must(zlib.NewWriterLevel(out, c.level))
	// Neither can fail: the writer is a slice in memory. The last bytes come out at Close.
	_, _ = w.Write(src)
	_ = w.Close()
	return out.Bytes()
}

func unzlib(src, dst []byte) (_ []byte, err error) {
	r, err := zlib.NewReader(bytes.NewReader(src))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	out := bytes.NewBuffer(dst)
	_, err = io.Copy(out, r)
	return out.Bytes(), err
}
