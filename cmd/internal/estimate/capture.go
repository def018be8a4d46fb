// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/gopacket/gopacket/reassembly"
)

// Bounds of what waits for packets that are missing: pages of about 2 kB, for a direction and for all.
const (
	pagesEach = 1024
	pagesAll  = 64 << 10
)

// By the capture's clock: how long a missing packet is waited for, after how long a silent connection is let go, and how often that
// is looked at.
const (
	gapWait   = 30 * time.Second
	idleWait  = 10 * time.Minute
	flushEach = 10 * time.Second
)

// Capture says what was in a capture besides the flows.
type Capture struct {
	Path          string `json:"path"`
	Packets       uint64 `json:"packets"`
	OtherPackets  uint64 `json:"other_packets"`           // not TCP, or of a kind that is not known
	Fragments     uint64 `json:"fragments"`               // of IP packets, which are left out
	CutPackets    uint64 `json:"cut_packets"`             // of which the capture holds only the beginning
	OutOfOrder    uint64 `json:"out_of_order_packets"`    // put in order
	Retransmitted uint64 `json:"retransmitted_packets"`   // left out: the leg would not carry them
	Gaps          uint64 `json:"gaps"`                    // places where bytes are missing
	GapBytes      uint64 `json:"gap_bytes"`               // that are missing
	Truncated     string `json:"truncated,omitempty"`     // why the rest of the capture could not be read
	LinkType      string `json:"link_type"`               // of its first packet
	Unestablished uint64 `json:"flows_without_beginning"` // connections that are older than the capture
}

// packets is a capture of either kind.
type packets interface {
	ZeroCopyReadPacketData() ([]byte, gopacket.CaptureInfo, error)
	LinkType() layers.LinkType
}

// capture sends what TCP carried in a capture, each direction of each connection as a flow.
func (e *estimator) capture(s source, r io.Reader, k kind) error {
	in, err := openCapture(r, k)
	if err != nil {
		return fmt.Errorf("%s: it begins as a capture and is none, or ends in its header (%w); capture anew, or give --plain to take it as any file", s.path, err)
	}
	c := newCapturing(e, s.path, in)
	if err := c.read(); err != nil {
		return fmt.Errorf("%s: %w", s.path, err)
	}
	if c.tcpBytes == 0 {
		return fmt.Errorf("%s: no bytes were carried by TCP in its %s, %d of them not TCP%s", s.path, plural(int(c.Packets), "packet"), c.OtherPackets, c.linkHint())
	}
	e.result.Captures = append(e.result.Captures, c.Capture)
	return nil
}

func openCapture(r io.Reader, k kind) (packets, error) {
	if k == kindPcapNG {
		return pcapgo.NewNgReader(r, pcapgo.NgReaderOptions{WantMixedLinkType: true, SkipUnknownVersion: true})
	}
	return pcapgo.NewReader(r)
}

// capturing is a capture that is being read.
type capturing struct {
	Capture
	e         *estimator
	in        packets
	assembler *reassembly.Assembler
	lanes     lanes
	tcpBytes  uint64
	undecoded uint64
	flushed   time.Time
	err       error // the first one of a lane
}

func newCapturing(e *estimator, path string, in packets) *capturing {
	c := &capturing{Capture: Capture{Path: path}, e: e, in: in}
	c.lanes.estimator = e
	c.assembler = reassembly.NewAssembler(reassembly.NewStreamPool(c))
	c.assembler.MaxBufferedPagesPerConnection, c.assembler.MaxBufferedPagesTotal = pagesEach, pagesAll
	return c
}

// read takes all packets. A capture that ends in the middle of one, or is damaged there, is used as far as it goes.
func (c *capturing) read() error {
	for c.err == nil {
		data, info, err := c.in.ZeroCopyReadPacketData()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			c.Truncated = err.Error()
			if errors.Is(err, io.ErrUnexpectedEOF) {
				c.Truncated = "it ends in the middle of a packet"
			}
			break
		}
		c.packet(data, info)
		c.flush(info.Timestamp)
	}
	c.lanes.closeAll(c) // in an order of our own, the assembler's is any
	c.assembler.FlushAll()
	return c.err
}

func (c *capturing) packet(data []byte, info gopacket.CaptureInfo) {
	c.Packets++
	link := c.in.LinkType()
	if len(info.AncillaryData) > 0 {
		if own, ok := info.AncillaryData[0].(layers.LinkType); ok {
			link = own
		}
	}
	if c.LinkType == "" {
		c.LinkType = link.String()
	}
	if info.CaptureLength < info.Length {
		c.CutPackets++
	}
	p := gopacket.NewPacket(data, link, gopacket.DecodeOptions{Lazy: true, NoCopy: true})
	tcp, _ := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
	network := p.NetworkLayer()
	switch {
	case fragment(p):
		c.Fragments++
	case tcp == nil || network == nil:
		c.OtherPackets++
		if network == nil && p.LinkLayer() == nil {
			c.undecoded++
		}
	default:
		c.assembler.AssembleWithContext(network.NetworkFlow(), tcp, &moment{info})
	}
}

// fragment tells whether a packet is a part of one: its TCP header, if it has one, says nothing of its length.
func fragment(p gopacket.Packet) bool {
	if ip, ok := p.NetworkLayer().(*layers.IPv4); ok {
		return ip.Flags&layers.IPv4MoreFragments != 0 || ip.FragOffset != 0
	}
	return p.Layer(layers.LayerTypeIPv6Fragment) != nil
}

// moment is of reassembly.AssemblerContext.
type moment struct{ info gopacket.CaptureInfo }

// GetCaptureInfo tells when a packet was seen.
func (m *moment) GetCaptureInfo() gopacket.CaptureInfo { return m.info }

// flush gives up on packets that have been missing for long, so that neither they nor silent connections hold memory.
func (c *capturing) flush(now time.Time) {
	if now.Sub(c.flushed) < flushEach {
		return
	}
	if !c.flushed.IsZero() {
		c.assembler.FlushWithOptions(reassembly.FlushOptions{T: now.Add(-gapWait), TC: now.Add(-idleWait)})
	}
	c.flushed = now
}

// linkHint says more where nothing at all was understood.
func (c *capturing) linkHint() string {
	if c.Packets > 0 && c.undecoded == c.Packets {
		return fmt.Sprintf("; packets of link type %s are not understood here: capture on an interface with addresses", c.LinkType)
	}
	return ""
}
