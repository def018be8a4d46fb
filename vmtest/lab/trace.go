// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
)

const (
	// opportunityBytes may pass at each line of a trace.
	opportunityBytes = 1500

	maxTraceLines  = 1 << 20
	maxTraceLength = 24 * time.Hour
	maxTraceLine   = 16 // bytes
)

// Trace is a measured link: moments at which 1500 bytes could pass. It repeats when it ends. It is not changed once read, so
// several labs may use one.
type Trace struct {
	at []uint32 // milliseconds since the beginning, ascending; the last is the trace's length
}

// ReadTrace reads a packet-delivery trace: on each line the milliseconds since its beginning at which 1500 bytes can pass, in
// ascending order; equal lines are several opportunities in that millisecond. Errors name the line.
func ReadTrace(r io.Reader) (*Trace, error) {
	t := &Trace{}
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 4096), maxTraceLine)
	for s.Scan() {
		if err := t.add(s.Text()); err != nil {
			return nil, fmt.Errorf("trace, line %d: %w", len(t.at)+1, err)
		}
	}
	if err := s.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("trace, line %d: longer than %d bytes; a line is a number of milliseconds", len(t.at)+1, maxTraceLine)
	} else if err != nil {
		return nil, fmt.Errorf("reading a trace, line %d: %w", len(t.at)+1, err)
	}
	if len(t.at) == 0 || t.at[len(t.at)-1] == 0 {
		return nil, fmt.Errorf("trace, line %d: it ends at 0 ms; a trace has at least one line above 0", len(t.at))
	}
	return t, nil
}

func (t *Trace) add(line string) error {
	ms, err := strconv.ParseUint(line, 10, 32)
	switch {
	case err != nil:
		return fmt.Errorf("%q is not a number of milliseconds", line)
	case time.Duration(ms)*time.Millisecond > maxTraceLength:
		return fmt.Errorf("%d ms is beyond %v", ms, maxTraceLength)
	case len(t.at) > 0 && uint32(ms) < t.at[len(t.at)-1]:
		return fmt.Errorf("%d ms lies before the line above, %d", ms, t.at[len(t.at)-1])
	case len(t.at) == maxTraceLines:
		return fmt.Errorf("more than %d lines", maxTraceLines)
	}
	t.at = append(t.at, uint32(ms))
	return nil
}

// Length is the time after which the trace begins again.
func (t *Trace) Length() time.Duration { return time.Duration(t.at[len(t.at)-1]) * time.Millisecond }

// Rate is the mean in bits per second.
func (t *Trace) Rate() float64 {
	return float64(len(t.at)) * opportunityBytes * 8 / t.Length().Seconds()
}
