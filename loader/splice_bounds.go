// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"time"
)

// spliceBounds are what the self-test waits at most, so that a kernel on which a wake-up is lost holds nobody up.
type spliceBounds struct {
	total  time.Duration // for all checks together
	check  time.Duration // for one check, and for each wake-up in it
	settle time.Duration // how long after its start a blocking call is taken to wait in the kernel
}

// Bounds at full speed, and where nothing waits longer. A check that is out of time fails: too little never switches the
// fast path on, too much only makes a faulty kernel known later.
var (
	spliceLeast = boundsOf(1800 * time.Millisecond)
	spliceMost  = boundsOf(time.Minute)
)

func boundsOf(total time.Duration) spliceBounds {
	return spliceBounds{total: total, check: total / 2, settle: total / 360}
}

const (
	// On an idle machine all checks together take some 10 times as long as the plain transfer.
	splicePlainTimes = 150
	splicePlainLimit = 10 * time.Second
	splicePlainBytes = 2 << 20
)

// boundsFor adapts the bounds to a machine on which a plain transfer takes so long.
func boundsFor(plain time.Duration) spliceBounds {
	return boundsOf(min(max(splicePlainTimes*plain, spliceLeast.total), spliceMost.total))
}

// measure does over plain TCP what the largest check does over the fast path, and sets the bounds by what that takes here
// and now: a slow or busy machine is then told from a kernel that loses wake-ups. Where plain TCP itself fails, the checks
// will say so.
func (b *spliceBench) measure() {
	b.bounds = spliceLeast
	if took, err := plainTransfer(b, b.listeners[0]); err == nil {
		b.bounds = boundsFor(took)
	}
}

// plainTransfer returns how long it takes to connect, send, receive and hash.
func plainTransfer(b *spliceBench, ln net.Listener) (time.Duration, error) {
	start := time.Now()
	p, err := b.connect(ln, start.Add(splicePlainLimit))
	if err != nil {
		return 0, err
	}
	defer p.close()
	sent := make(chan error, 1)
	go func() { sent <- writeRandom(p.app, sha256.New(), splicePlainBytes) }()
	_, err = io.CopyBuffer(struct{ io.Writer }{sha256.New()}, io.LimitReader(p.eng, splicePlainBytes), make([]byte, 16<<10))
	return time.Since(start), errors.Join(err, <-sent)
}

// limit is how long a check may wait for one wake-up.
func (p *splicePair) limit() time.Duration {
	if p.b == nil {
		return spliceMost.check
	}
	return p.b.bounds.check
}
