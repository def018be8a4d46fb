// SPDX-License-Identifier: Apache-2.0

package dedup_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/trunkline/trunkline/proxy/dedup"
	"github.com/trunkline/trunkline/proxy/dedup/codec"
	"github.com/trunkline/trunkline/proxy/dedup/wanproxy"
	"github.com/trunkline/trunkline/proxy/history"
)

// residentBytes is what the process takes of the machine's memory, without what its heap can do without.
func residentBytes(t *testing.T) int64 {
	t.Helper()
	debug.FreeOSMemory()
	debug.FreeOSMemory() // the first one leaves what pools hold
	b, err := os.ReadFile("/proc/self/statm")
	var size, resident int64
	if err == nil {
		_, err = fmt.Sscan(string(b), &size, &resident)
	}
	if err != nil {
		t.Fatalf("reading how much memory the process takes: %v", err)
	}
	return resident * int64(os.Getpagesize())
}

// end makes one end's memory of a peer.
func end(t *testing.T, boundBytes int64) (*dedup.Memory, *history.Store) {
	t.Helper()
	s, err := history.Open(history.Options{MemoryBytes: boundBytes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return dedup.NewMemory(s, wanproxy.NewStore(boundBytes), []byte("peer")), s
}

// After four times the bound has gone through flows of several groups, both ends hold what was configured, the index included, and
// no more: flows, blocks and second stages are gone with the flows.
func TestMemoryIsBounded(t *testing.T) {
	const (
		bound    = 48 << 20
		flows    = 12
		flowSize = 4 * bound / flows
		groups   = 3
		// What a process keeps whose flows have ended: pools that are not empty yet.
		rest = 6 << 20
	)
	before := residentBytes(t)
	near, nearStore := end(t, bound)
	far, farStore := end(t, bound)
	near.SetPeer(far.Receivers.Epoch(), far.Receivers.Epoch(), 0)
	far.SetPeer(near.Receivers.Epoch(), near.Receivers.Epoch(), 0)
	noise := rand.NewChaCha8([32]byte{5})
	src := make([]byte, 256<<10)
	var payload []byte
	for f := range flows {
		group := fmt.Sprint("group ", f%groups)
		enc, dec := near.Encoder(codec.Spec{}, group), far.Decoder(codec.Spec{}, group)
		for range flowSize / len(src) {
			_, _ = noise.Read(src[:len(src)/2]) // half of it compresses
			payload = enc.Encode(payload[:0], src)
			got, err := dec.Decode(payload)
			if err != nil || !bytes.Equal(got, src) {
				t.Fatalf("flow %d: %d bytes come out of %d: %v", f, len(got), len(src), err)
			}
			enc.Ack(dec.Decoded())
		}
		enc.Close()
		dec.Close()
	}
	payload, src = nil, nil
	used := residentBytes(t) - before
	if most := int64(2*bound + rest); used > most {
		t.Errorf("two ends with a bound of %d MiB hold %d MiB, %d MiB more than configured", bound>>20, used>>20, (used-most)>>20)
	}
	if least := int64(2 * bound * 3 / 4); used < least {
		t.Errorf("two ends with a bound of %d MiB hold %d MiB: what was configured is not made use of", bound>>20, used>>20)
	}
	runtime.KeepAlive([]any{near, far, nearStore, farStore})
}
