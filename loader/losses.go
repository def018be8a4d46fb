// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/trunkline/trunkline/bpf"
)

// Loss is a loss event of a flow with Auto: its first retransmission after all that was in flight at the event before has
// been acknowledged.
type Loss struct {
	At           time.Time
	Cookie       uint64 // of the socket
	Path         netip.Prefix
	PeerID       uint32 // 0: no peer
	RuleID       uint32
	SRTTUs       uint32
	RTTMinUs     uint32
	CwndPackets  uint32 // before the event
	DeliveredBps uint64 // bytes per second, the latest sample before the event
	BytesAcked   uint64
	SegsOut      uint32
	Retransmits  uint32 // segments, this one included
}

// Losses calls f with each loss event until ctx ends, those from before the call first. Events come when they happen; a
// reader that is too slow misses some, which LossesDropped counts. Events of one flow come in the order of their time; those
// of flows on different processors may pass each other by microseconds. There is one reader at a time: for a second one it is
// an error. It returns nil when ctx has ended.
func (l *Loader) Losses(ctx context.Context, f func(Loss)) error {
	if !l.losses.TryLock() {
		return errors.New("loss events are being read already")
	}
	defer l.losses.Unlock()
	r, err := ringbuf.NewReader(l.maps["tl_loss"])
	if err != nil {
		return fmt.Errorf("reading loss events: %w", err)
	}
	defer r.Close()
	stop := context.AfterFunc(ctx, func() { r.Close() })
	defer stop()
	var rec ringbuf.Record
	// One pair of the two clocks for all events: a pair each would put whatever came between its halves into the order.
	began, beganNs := time.Now(), monotonic()
	for {
		err := r.ReadInto(&rec)
		switch {
		case ctx.Err() != nil && errors.Is(err, os.ErrClosed):
			return nil
		case err != nil:
			return fmt.Errorf("reading loss events: %w", err)
		}
		var e bpf.LossEvent
		if _, err := binary.Decode(rec.RawSample, binary.LittleEndian, &e); err != nil {
			return fmt.Errorf("a loss event of %d bytes: %w", len(rec.RawSample), err)
		}
		f(decodeLoss(e, began, beganNs))
	}
}

// decodeLoss takes the same moment by both clocks.
func decodeLoss(e bpf.LossEvent, at time.Time, atNs uint64) Loss {
	return Loss{
		At:           at.Add(time.Duration(int64(e.TimeNs - atNs))),
		Cookie:       e.Cookie,
		Path:         e.Path.Netip(),
		PeerID:       e.Path.PeerId,
		RuleID:       e.RuleId,
		SRTTUs:       e.SrttUs,
		RTTMinUs:     e.RttMinUs,
		CwndPackets:  e.CwndPackets,
		DeliveredBps: e.DeliveredBps,
		BytesAcked:   e.BytesAcked,
		SegsOut:      e.SegsOut,
		Retransmits:  e.Retransmits,
	}
}

// LossesDropped returns how many loss events there was no room for since Load.
func (l *Loader) LossesDropped() (uint64, error) {
	var perCPU []uint64
	if err := l.maps["tl_loss_dropped"].Lookup(uint32(0), &perCPU); err != nil {
		return 0, fmt.Errorf("reading the count of dropped loss events: %w", err)
	}
	var sum uint64
	for _, n := range perCPU {
		sum += n
	}
	return sum, nil
}
