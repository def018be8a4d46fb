// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// windowBytes is how far back a zstd stream looks: both ends hold as much.
const windowBytes = 512 << 10

var zstdLevels = [codec.Efforts]zstd.EncoderLevel{
	codec.EffortFastest: zstd.SpeedFastest, codec.EffortDefault: zstd.SpeedDefault, codec.EffortBetter: zstd.SpeedBetterCompression,
}

func newZstd(e codec.Effort) compressor {
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstdLevels[e]), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(windowBytes), zstd.WithEncoderCRC(false), zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic(fmt.Sprintf("making a zstd encoder: %v", err)) // the options are constants
	}
	return w
}

type zstdReader struct{ *zstd.Decoder }

func newZstdReader() zstdReader {
	r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(windowBytes), zstd.WithDecoderMaxMemory(64<<20))
	if err != nil {
		panic(fmt.Sprintf("making a zstd decoder: %v", err))
	}
	return zstdReader{r}
}

func (z zstdReader) restart(r io.Reader) error { return z.Reset(r) }

// rest finds all of a part used up: the encoder flushes at the end of each.
func (z zstdReader) rest(s *source) error {
	if s.size() > 0 {
		return ErrFormat
	}
	return nil
}
