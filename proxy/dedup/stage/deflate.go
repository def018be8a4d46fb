// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"fmt"
	"io"

	"github.com/klauspost/compress/flate"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// syncMark ends each flush of a deflate stream. Both ends know that, so it is not sent.
var syncMark = []byte{0, 0, 0xff, 0xff}

// maxLeft is how many bytes of a part may be unread when all it stands for has been read: the end of its last block, and the mark.
const maxLeft = 16

var deflateLevels = [codec.Efforts]int{codec.EffortFastest: 1, codec.EffortDefault: 6, codec.EffortBetter: 9}

func newDeflate(e codec.Effort) compressor {
	w, err := flate.NewWriter(io.Discard, deflateLevels[e])
	if err != nil {
		panic(fmt.Sprintf("making a deflate encoder: %v", err)) // the levels are constants
	}
	return w
}

type inflater struct{ io.ReadCloser }

func (z *inflater) restart(r io.Reader) error {
	if z.ReadCloser == nil {
		z.ReadCloser = flate.NewReader(r)
		return nil
	}
	return z.ReadCloser.(flate.Resetter).Reset(r, nil)
}

func (z *inflater) rest(s *source) error {
	if s.size() > maxLeft {
		return ErrFormat
	}
	var left [maxLeft]byte
	n, _ := s.Read(left[:])
	s.left = append(s.keep[:0], left[:n]...)
	return nil
}
