// SPDX-License-Identifier: Apache-2.0

package native

import (
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// A zstd stream costs some hundred KiB at each end, so streams are made when a leg first needs one, and used again.
var (
	deflaters = sync.Pool{New: func() any {
		w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
			zstd.WithWindowSize(window), zstd.WithEncoderCRC(false), zstd.WithLowerEncoderMem(true))
		if err != nil {
			panic(fmt.Sprintf("making a zstd encoder: %v", err)) // the options are constants
		}
		return w
	}}
	inflaters = sync.Pool{New: func() any {
		r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(window), zstd.WithDecoderMaxMemory(64<<20))
		if err != nil {
			panic(fmt.Sprintf("making a zstd decoder: %v", err))
		}
		return r
	}}
)

// A deflater is the sending end of a leg's zstd stream.
type deflater struct {
	w    *zstd.Encoder
	out  []byte
	live bool // the stream has begun
}

func (d *deflater) Write(b []byte) (int, error) {
	d.out = append(d.out, b...)
	return len(b), nil
}

// add appends to dst what the stream gives for data, flushed.
func (d *deflater) add(dst, data []byte) []byte {
	if d.w == nil {
		d.w = deflaters.Get().(*zstd.Encoder)
	}
	if !d.live {
		d.w.Reset(d)
		d.live = true
	}
	d.out = dst
	// Neither can fail: the writer is a slice in memory.
	_, _ = d.w.Write(data)
	_ = d.w.Flush()
	dst, d.out = d.out, nil
	return dst
}

func (d *deflater) close() {
	if d.w != nil {
		d.w.Reset(nil)
		deflaters.Put(d.w)
	}
	*d = deflater{}
}

// An inflater is the receiving end.
type inflater struct {
	r    *zstd.Decoder
	in   []byte // what the stream has not taken yet
	live bool
}

func (d *inflater) Read(b []byte) (int, error) {
	if len(d.in) == 0 {
		return 0, io.EOF
	}
	n := copy(b, d.in)
	d.in = d.in[n:]
	return n, nil
}

// take fills dst with what the stream gives for data. The encoder flushes at the end of every block, so that all of data
// is used up then.
func (d *inflater) take(dst, data []byte) error {
	if d.r == nil {
		d.r = inflaters.Get().(*zstd.Decoder)
	}
	d.in = data
	if !d.live {
		if err := d.r.Reset(d); err != nil {
			return fmt.Errorf("beginning the zstd stream: %w", err)
		}
		d.live = true
	}
	_, err := io.ReadFull(d.r, dst)
	if err == nil && len(d.in) > 0 {
		err = errFormat
	}
	d.in = nil
	if err != nil {
		return fmt.Errorf("inflating literals: %w", err)
	}
	return nil
}

func (d *inflater) close() {
	if d.r != nil {
		_ = d.r.Reset(nil)
		inflaters.Put(d.r)
	}
	*d = inflater{}
}
