// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/reassembly"
)

// stream is a TCP connection of a capture: two directions.
type stream struct {
	c              *capturing
	client, server netip.AddrPort
	swapped        bool // the first packet came from the server
	whole          bool // its beginning is in the capture
	halves         [2]half
	counted        bool
	Flow
}

// Directions; the index of a half.
const (
	fromClient = 0
	fromServer = 1
)

// half is one direction.
type half struct {
	s     *stream
	dir   int
	block []byte    // bytes that the next block will hold
	since time.Time // of its first byte
	lane  *lane     // nil: not in use now
	spot  int       // in lanes
	used  uint64    // when the lane was used last
	bytes uint64

	next  reassembly.Sequence // of the next byte
	acked reassembly.Sequence // what the other end has said it has; -1: nothing
	fin   bool
}

// New is of reassembly.StreamFactory: a connection that was not seen before. The client is who sent the SYN; if that is not in the
// capture, who has the higher port.
func (c *capturing) New(network, transport gopacket.Flow, tcp *layers.TCP, _ reassembly.AssemblerContext) reassembly.Stream {
	from, to := endpoint(network.Src(), tcp.SrcPort), endpoint(network.Dst(), tcp.DstPort)
	s := &stream{c: c, client: from, server: to, whole: tcp.SYN}
	s.swapped = tcp.SYN && tcp.ACK || !tcp.SYN && tcp.SrcPort < tcp.DstPort
	if s.swapped {
		s.client, s.server = to, from
	}
	for i := range s.halves {
		s.halves[i] = half{s: s, dir: i, spot: -1, acked: -1}
	}
	return s
}

func endpoint(address gopacket.Endpoint, port layers.TCPPort) netip.AddrPort {
	a, _ := netip.AddrFromSlice(address.Raw())
	return netip.AddrPortFrom(a, uint16(port))
}

// index is the half of a direction as the assembler calls it: by the first packet.
func (s *stream) index(dir reassembly.TCPFlowDirection) int {
	if (dir == reassembly.TCPDirServerToClient) != s.swapped {
		return fromServer
	}
	return fromClient
}

// Accept is of reassembly.Stream: it counts what the assembler does not, and lets connections that are older than the capture
// begin with the first packet seen.
func (s *stream) Accept(tcp *layers.TCP, _ gopacket.CaptureInfo, dir reassembly.TCPFlowDirection, next reassembly.Sequence, start *bool,
	_ reassembly.AssemblerContext) bool {
	h, other := &s.halves[s.index(dir)], &s.halves[1-s.index(dir)]
	h.fin = h.fin || tcp.FIN
	if tcp.ACK {
		other.acked = reassembly.Sequence(tcp.Ack)
	}
	if next < 0 {
		*start = true
		h.next = reassembly.Sequence(tcp.Seq)
		if tcp.SYN {
			h.next = h.next.Add(1)
		}
		return true
	}
	if len(tcp.Payload) > 0 {
		switch ahead := next.Difference(reassembly.Sequence(tcp.Seq)); {
		case ahead > 0:
			s.c.OutOfOrder++
		case ahead < 0:
			s.c.Retransmitted++
		}
	}
	return true
}

// ReassembledSG is of reassembly.Stream: the next bytes of a direction.
func (s *stream) ReassembledSG(sg reassembly.ScatterGather, ac reassembly.AssemblerContext) {
	dir, _, _, skipped := sg.Info()
	h := &s.halves[s.index(dir)]
	s.gap(skipped)
	n, _ := sg.Lengths()
	h.next = h.next.Add(max(skipped, 0) + n)
	if n == 0 || s.c.err != nil {
		return
	}
	if !s.counted {
		s.counted = true
		if !s.whole {
			s.c.Unestablished++
		}
	}
	s.c.tcpBytes += uint64(n)
	if err := h.take(sg.Fetch(n), ac.GetCaptureInfo().Timestamp); err != nil {
		s.c.err = fmt.Errorf("%v to %v: %w", s.client, s.server, err)
	}
}

// gap counts bytes that the capture lacks.
func (s *stream) gap(bytes int) {
	if bytes > 0 {
		s.c.Gaps++
		s.c.GapBytes += uint64(bytes)
		s.GapBytes += uint64(bytes)
	}
}

// tail is how many bytes the other end has got after the last one that the capture has.
func (h *half) tail() int {
	if h.acked < 0 || h.bytes == 0 {
		return 0
	}
	lacks := h.next.Difference(h.acked)
	if h.fin {
		lacks-- // a FIN has a number, too
	}
	return lacks
}

// ReassemblyComplete is of reassembly.Stream. The connection stays known for a while, so that packets that come late do not begin
// another one.
func (s *stream) ReassemblyComplete(reassembly.AssemblerContext) bool {
	for i := range s.halves {
		s.gap(s.halves[i].tail())
		if err := s.halves[i].close(); err != nil && s.c.err == nil {
			s.c.err = fmt.Errorf("%v to %v: %w", s.client, s.server, err)
		}
	}
	s.tell()
	return false
}

// tell hands the connection's figures over, once.
func (s *stream) tell() {
	if s.RawBytes == 0 {
		return
	}
	s.Client, s.Server = s.client.String(), s.server.String()
	s.c.e.result.addFlow(s.Flow, s.server.Port())
	s.Flow = Flow{Protocol: s.Protocol}
}

// Blocks of a flow: what the application sends within a moment, up to a size.
const (
	blockBytes = 64 << 10
	blockWait  = 10 * time.Millisecond
)

// take adds bytes to the block, and sends it when it is full, when it has waited, and when the other direction has its turn.
func (h *half) take(data []byte, now time.Time) error {
	if h.bytes == 0 {
		if p := protocolOf(data); p != "" {
			h.s.Protocol = p
		}
	}
	h.bytes += uint64(len(data))
	if err := h.s.halves[1-h.dir].flush(); err != nil {
		return err
	}
	if now.Sub(h.since) > blockWait {
		if err := h.flush(); err != nil {
			return err
		}
	}
	for len(data) > 0 {
		if len(h.block) == 0 {
			h.since = now
		}
		n := min(len(data), blockBytes-len(h.block))
		h.block = append(h.block, data[:n]...)
		data = data[n:]
		if len(h.block) == blockBytes {
			if err := h.flush(); err != nil {
				return err
			}
		}
	}
	return h.s.c.lanes.touch(h)
}

// flush sends the block.
func (h *half) flush() error {
	if len(h.block) == 0 {
		return nil
	}
	if err := h.s.c.lanes.touch(h); err != nil {
		return err
	}
	err := h.lane.send(h.block)
	h.block = h.block[:0]
	return err
}

// close sends the rest and gives the lane back.
func (h *half) close() error {
	err := h.flush()
	if h.lane == nil {
		return err
	}
	sums, why := h.lane.end()
	h.s.Sums.add(sums)
	if why != "" {
		h.s.Reason = why
	}
	h.s.c.lanes.remove(h)
	h.lane, h.block = nil, nil
	return err
}
