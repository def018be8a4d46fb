// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/trunkline/trunkline/cmd/internal/units"
	"github.com/trunkline/trunkline/loader/policy"
)

// Kernel is the end system that reservations are in force on.
type Kernel interface {
	Reserve([]policy.Reserved) error // these and no others
	Connections() ([]Connection, error)
	Use() []Use
}

const (
	enforceEvery = 100 * time.Millisecond // live connections are to lose their privileges within a second of the end
	watchEvery   = time.Second
	keepEvery    = 30 * time.Second // what only grows is written down
	maxProbes    = 16               // at a time
)

// Keeper is the control plane: it has the kernel hold what the book grants, and watches the paths.
type Keeper struct {
	book   *Book
	kernel Kernel
	prober Prober
	log    *slog.Logger

	enforcing sync.Mutex // guards what follows
	inForce   []Grant
	put       bool  // the kernel has inForce
	failing   error // why it has not, which has been said
	unkept    bool  // the book cannot be written down, and that has been said

	watches map[place]*watch // the watching goroutine's alone
	blind   bool             // connections cannot be read, and that has been said
}

// place is an end point of a reservation.
type place struct {
	id     string
	remote netip.Prefix
}

// NewKeeper keeps what the book grants.
func NewKeeper(b *Book, k Kernel, p Prober, log *slog.Logger) *Keeper {
	return &Keeper{book: b, kernel: k, prober: p, log: log, watches: map[place]*watch{}}
}

// Run keeps reservations until ctx ends. What is in force then stays with the kernel side, which goes with the process.
func (k *Keeper) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		every(ctx, watchEvery, nil, func() { k.Watch(ctx) })
	})
	every(ctx, enforceEvery, k.book.Woken(), k.Enforce)
	return nil
}

func every(ctx context.Context, d time.Duration, sooner <-chan struct{}, do func()) {
	t := time.NewTicker(d)
	defer t.Stop()
	for {
		do()
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-sooner:
		}
	}
}

// Enforce brings what the kernel holds to what the book grants now.
func (k *Keeper) Enforce() {
	k.enforcing.Lock()
	defer k.enforcing.Unlock()
	changed, err := k.book.Tick()
	if err != nil && !k.unkept {
		k.log.Warn("reservations cannot be written down; a restart would find them as they were before; see that the disk has room", "err", err)
	}
	k.unkept = err != nil
	for _, t := range changed {
		k.logTransition(t)
	}
	want := k.book.InForce()
	if k.put && sameSet(want, k.inForce) {
		return
	}
	err = k.kernel.Reserve(reserved(want, k.book.clock.Boot()))
	if err != nil && k.failing == nil {
		k.log.Error("reservations cannot be put in force; connections are as under window: auto, and it is tried again", "err", err)
	}
	k.put, k.failing = err == nil, err
	if err == nil {
		k.inForce = want
	}
}

// Problem is why the kernel does not hold what the book grants, "" if it does.
func (k *Keeper) Problem() string {
	k.enforcing.Lock()
	defer k.enforcing.Unlock()
	if k.failing == nil {
		return ""
	}
	return k.failing.Error()
}

// reserved says until when grants last, by a clock that the kernel side can read.
func reserved(grants []Grant, boot time.Duration) []policy.Reserved {
	set := make([]policy.Reserved, len(grants))
	for i, g := range grants {
		set[i] = g.Reserved
		set[i].Until = time.Now().Add(g.EndBoot - boot)
	}
	return set
}

// sameSet leaves out what two clocks that both go right differ by.
func sameSet(a, b []Grant) bool {
	return slices.EqualFunc(a, b, func(x, y Grant) bool {
		return x.ID == y.ID && x.RateBps == y.RateBps && x.RTT == y.RTT && slices.Equal(x.Remote, y.Remote) && (x.EndBoot-y.EndBoot).Abs() < time.Second
	})
}

func (k *Keeper) logTransition(t Transition) {
	log := k.log.With("id", t.ID, "owner", t.Owner)
	switch {
	case t.State == Ended:
		log.Info("a reservation has ended", "by", by(t.EndedBy))
	case t.State == Suspended:
		log.Warn("a reservation is suspended: its connections are as under window: auto until the path is as reserved", "why", t.Reason)
	case t.State == Active && t.Tuning != nil:
		what := "a reservation is in force"
		if t.From == Suspended {
			what = "a reservation is in force again"
		} else if t.From == Active {
			what = "a reservation is in force with other values"
		}
		log.Info(what, "rate", units.FormatRate(float64(t.Tuning.RateBps)*8), "rtt", time.Duration(t.Tuning.RTTus)*time.Microsecond,
			"window_bytes", t.Tuning.WindowBytes, "to", t.Tuning.Prefixes)
	}
}

func by(who string) string {
	if who == "" {
		return "its time"
	}
	return who
}

// Watch looks at the end points whose turn it is, by connections and probes, and at what connections make of reservations.
func (k *Keeper) Watch(ctx context.Context) {
	k.book.used(k.kernel.Use())
	due := k.due()
	if len(due) == 0 {
		return
	}
	connections, err := k.kernel.Connections()
	if err != nil && !k.blind {
		k.log.Warn("connections cannot be read, so round-trip times are probed only", "err", err)
	}
	k.blind = err != nil
	band := k.book.Policy().Band
	samples := make([]sample, len(due))
	slots := make(chan struct{}, maxProbes)
	var wg sync.WaitGroup
	for i, d := range due {
		s, queued := sampleOf(connections, d.EndPoint, band)
		samples[i] = s
		off := s.rtt > 0 && d.RTTus > 0 && !within(s.rtt, d.RTT(), band)
		if !d.Probe.IsValid() || s.rtt > 0 && !queued && !off {
			continue
		}
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			switch rtt, err := k.prober.Probe(ctx, d.Probe); {
			case err == nil:
				samples[i] = sample{rtt: max(rtt, time.Microsecond), source: fromProbe}
			case s.rtt == 0:
				samples[i] = sample{silent: true}
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return // a probe that was cut short is no silence
	}
	for i, d := range due {
		k.judge(d, samples[i], band)
	}
}

// spot is an end point that is looked at.
type spot struct {
	EndPoint
	place place
	watch *watch
}

// due are the end points whose turn it is; what is remembered of others that are gone is forgotten.
func (k *Keeper) due() []spot {
	var due []spot
	seen := map[place]bool{}
	boot := k.book.clock.Boot()
	for _, r := range k.book.List() {
		if r.State == Ended || r.State == Pending && r.Start.Sub(r.Anchor.now(k.book.clock)) > lookAhead {
			continue
		}
		for _, e := range r.EndPoints {
			p := place{r.ID, e.Remote}
			seen[p] = true
			w := k.watches[p]
			if w == nil {
				w = &watch{}
				k.watches[p] = w
			}
			if e.RTTus > 0 && !e.Given && w.next > boot {
				continue
			}
			due = append(due, spot{e, p, w})
		}
	}
	for p := range k.watches {
		if !seen[p] {
			delete(k.watches, p)
		}
	}
	return due
}

func (k *Keeper) judge(s spot, got sample, band time.Duration) {
	now := k.book.clock.Wall()
	k.book.update(s.place.id, s.place.remote, func(e *EndPoint) bool {
		event := s.watch.judge(e, got, band, now)
		s.watch.next = k.book.clock.Boot() + s.watch.pause(*e) - watchEvery/2 // the ticker is not to miss it by a hair
		if event != "" {
			k.log.Info("reserved path: "+event, "id", s.place.id, "to", s.place.remote, "rtt", e.RTT(), "latest", time.Duration(e.LastUs)*time.Microsecond,
				"source", e.Source)
		}
		return event != ""
	})
}
