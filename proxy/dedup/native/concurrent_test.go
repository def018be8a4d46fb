// SPDX-License-Identifier: Apache-2.0

package native

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// TestConcurrentLegs runs legs at the same time on one history, each with its own delays, through a log far smaller than what
// passes; some legs are aborted. No leg that lives on may have to ask.
func TestConcurrentLegs(t *testing.T) {
	e := newEnds(1 << 20)
	pool := append(text(1, 1<<20), random(1, 1<<20)...)
	var wg sync.WaitGroup
	for leg := range 8 {
		wg.Go(func() {
			for round := range 6 {
				r := rand.New(rand.NewPCG(uint64(leg), uint64(round)))
				if err := carry(e, r, pool, round%3 == 2); err != nil {
					t.Errorf("leg %d, round %d: %v", leg, round, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// carry sends about a MiB of pieces over a leg whose far end has a goroutine of its own.
func carry(e *ends, r *rand.Rand, pool []byte, abort bool) error {
	enc, dec := NewEncoder(e.senders.Group("g"), Options{}), NewDecoder(e.receivers, "g")
	defer enc.Close()
	type sentBlock struct{ payload, want []byte }
	wire, done := make(chan sentBlock, 64), make(chan error, 1)
	delays := rand.New(rand.NewPCG(r.Uint64(), 0))
	go func() {
		defer dec.Close()
		for s := range wire {
			if delays.IntN(8) == 0 {
				time.Sleep(time.Duration(delays.IntN(300)) * time.Microsecond)
			}
			got, err := dec.Decode(s.payload)
			if err == nil && !bytes.Equal(got, s.want) {
				err = fmt.Errorf("other bytes came out")
			}
			if err != nil {
				for range wire {
				}
				done <- err
				return
			}
			enc.Ack(dec.Decoded())
		}
		done <- nil
	}()
	for left := 1 << 20; left > 0; {
		for enc.Unacked() > 300<<10 {
			time.Sleep(50 * time.Microsecond)
			if len(done) > 0 {
				break
			}
		}
		n := 1 + r.IntN(1<<r.IntN(18))
		at := r.IntN(len(pool) - n)
		s := sentBlock{want: pool[at : at+n]}
		s.payload = enc.Encode(nil, s.want)
		wire <- s
		if left -= n; abort && left < 1<<19 {
			break
		}
	}
	if abort {
		enc.Close()
	}
	close(wire)
	if err := <-done; !abort {
		return err
	}
	return nil
}
