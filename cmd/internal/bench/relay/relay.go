// SPDX-License-Identifier: Apache-2.0

// Package relay is `trunkline bench relay`: how fast two agents carry bytes from end to end, beside a pair of plain TCP relays
// and a pair that speaks TLS.
package relay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/trunkline/trunkline/cmd/internal/bench"
	"github.com/trunkline/trunkline/cmd/internal/labagent"
)

// The ways from the client to the server.
const (
	wayAgents = "agents"
	wayPlain  = "plain"
	wayTLS    = "tls"
)

var ways = []string{wayAgents, wayPlain, wayTLS}

// exchangeBytes and exchanges are those of one measurement.
const exchangeBytes, exchanges = 100, 400

// A kind of measurement, in the order of the table.
var kinds = []struct {
	name string
	data byte
	same bool // the same bytes each time
}{{"repeat", kindNoise, true}, {"new-noise", kindNoise, false}, {"new-text", kindText, false}, {"exchange", kindEcho, false}}

type relay struct {
	rounds, mebibytes int
	session           *bench.Session
	dir               string
	seed              uint64
	runs              map[cell][]float64 // Mbit/s, or microseconds an exchange
}

// A cell is one place in the result.
type cell struct{ link, kind, way string }

// links are the rates of the link, in bytes per second for each connection; 0: none.
var links = []struct {
	name string
	Bps  uint64
}{{"unlimited", 0}, {"1Gbit", 125_000_000}}

// New is the bench for the catalogue.
func New() *bench.Bench {
	r := &relay{runs: map[cell][]float64{}}
	return &bench.Bench{
		Name:  "relay",
		Short: "How fast two agents carry bytes, beside a pair of plain relays and one with TLS",
		Long: "relay makes two hosts in network namespaces, joined by a veth: without a limit, and with every connection between\n" +
			"them paced to 1 Gbit/s. A client fetches the same bytes again and again, new ones that do not compress, new ones\n" +
			"that do, and exchanges 100 bytes, through two agents, a pair of plain TCP relays and a pair that speaks TLS 1.3\n" +
			"between its halves. Every round runs all of them in an order drawn by --seed, on connections that stay.",
		Example:  "  sudo trunkline bench relay --quick\n  sudo trunkline bench relay --out results --json",
		NeedRoot: true,
		Flags: func(f *pflag.FlagSet) {
			f.IntVar(&r.rounds, "rounds", 0, "how often each is run (default 9, with --quick 3)")
			f.IntVar(&r.mebibytes, "mebibytes", 0, "of each fetch (default 64, with --quick 16)")
		},
		Check: r.check,
		Run:   r.run,
	}
}

func (r *relay) check() error {
	switch {
	case r.rounds < 0 || r.rounds > 1000:
		return fmt.Errorf("--rounds %d must be from 1 to 1000", r.rounds)
	case r.mebibytes < 0 || r.mebibytes > maxBytes>>20:
		return fmt.Errorf("--mebibytes %d must be from 1 to %d", r.mebibytes, maxBytes>>20)
	}
	return nil
}

func (r *relay) run(ctx context.Context, s *bench.Session) (_ *bench.Report, err error) {
	r.session, r.seed = s, s.Seed<<32
	rounds, mebibytes := 9, 64
	if s.Quick {
		rounds, mebibytes = 3, 16
	}
	if r.rounds == 0 {
		r.rounds = rounds
	}
	if r.mebibytes == 0 {
		r.mebibytes = mebibytes
	}
	for _, dir := range labagent.RemoveStale(ctx, "bench", s.Binary) {
		s.Progress.Notef("removed %s, which a killed bench left", dir)
	}
	if r.dir, err = labagent.MakeDir("bench"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.dir)) }()
	if s.Binary, err = labagent.CopyBinary(s.Binary, r.dir); err != nil {
		return nil, err
	}
	for i := range links {
		if err := r.over(ctx, i); err != nil {
			return nil, err
		}
	}
	return r.report(), nil
}

// over measures all there is over one link.
func (r *relay) over(ctx context.Context, n int) (err error) {
	link := links[n]
	w := &world{session: r.session, dir: r.dir, pacing: link.Bps}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.open(ctx); err != nil {
		return err
	}
	clients := make([]*client, len(ways))
	for i, way := range ways {
		if clients[i], err = w.connect(ctx, way); err != nil {
			return err
		}
		// What is repeated later, sent once; and what the first bytes find cold.
		if _, err := clients[i].do(r.order(0)); err != nil {
			return err
		}
	}
	if n, err := w.carried(ctx); err != nil || n != 1 {
		return errors.Join(err, fmt.Errorf("%d connections went through the agents, not the one that should have", n))
	}
	for round, turn := range bench.Interleave(r.session.Seed, r.rounds, len(kinds)*len(ways)) {
		for _, k := range turn {
			kind, way := k/len(ways), k%len(ways)
			r.session.Progress.Step((n*r.rounds+round)*len(turn), len(links)*r.rounds*len(turn), "%s link, round %d of %d", link.name, round+1, r.rounds)
			o := r.order(kind)
			got, err := clients[way].do(o)
			if err != nil {
				return err
			}
			c := cell{link.name, kinds[kind].name, ways[way]}
			if o.Kind == kindEcho {
				r.runs[c] = append(r.runs[c], float64(got.Exchange)/float64(time.Microsecond))
			} else {
				r.runs[c] = append(r.runs[c], float64(o.Bytes)*8/got.Took.Seconds()/1e6)
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	for _, c := range clients {
		if err := c.end(); err != nil {
			return err
		}
	}
	return nil
}

func (r *relay) order(kind int) order {
	k := kinds[kind]
	o := order{Kind: k.data, Seed: r.session.Seed, Bytes: r.mebibytes << 20}
	if !k.same {
		r.seed += exchanges
		o.Seed = r.seed
	}
	if k.data == kindEcho {
		o.Bytes, o.Count = exchangeBytes, exchanges
	}
	return o
}
