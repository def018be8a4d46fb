// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/trunkline/trunkline/cmd/internal/bench"
	"github.com/trunkline/trunkline/cmd/internal/bench/child"
	"github.com/trunkline/trunkline/cmd/internal/bench/wire"
	"github.com/trunkline/trunkline/cmd/internal/labagent"
	"github.com/trunkline/trunkline/vmtest/lab"
)

// Ports at the site of the server, and of the near relays at that of the client.
const (
	serverPort = 9000
	plainPort  = 9001
	tlsPort    = 9002
	peerPort   = 4820
)

// world is a client's host and a server's, joined by a link, with two agents and two pairs of relays between them.
type world struct {
	session *bench.Session
	dir     string
	pacing  uint64 // bytes per second of each connection over the link; 0: none
	lab     *lab.Lab
	agents  []*labagent.Agent
}

// open brings everything up; whatever it gives, close must follow.
func (w *world) open(ctx context.Context) (err error) {
	if w.lab, err = lab.New(lab.Options{NoIPv6: true}); err != nil {
		return fmt.Errorf("making the sites: %w", err)
	}
	if err := wire.Lay(w.lab.A, w.lab.B); err != nil {
		return err
	}
	if err := w.start(ctx, w.lab.B, ServeCommand, at(serverPort)); err != nil {
		return err
	}
	pacing := strconv.FormatUint(w.pacing, 10)
	for _, p := range []struct {
		way  string
		port int
	}{{wayPlain, plainPort}, {wayTLS, tlsPort}} {
		if err := w.start(ctx, w.lab.B, PassCommand, at(p.port), at(serverPort), p.way, farEnd, pacing); err != nil {
			return err
		}
		if err := w.start(ctx, w.lab.A, PassCommand, nearAt(p.port), at(p.port), p.way, nearEnd, pacing); err != nil {
			return err
		}
	}
	return w.startAgents(ctx)
}

func at(port int) string     { return fmt.Sprintf("%s:%d", wire.Service, port) }
func nearAt(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// start starts a server or relay, and waits until it listens.
func (w *world) start(ctx context.Context, s *lab.Site, args ...string) error {
	cmd := s.Command(ctx, w.session.Binary, args...)
	cmd.Env = child.Env()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("starting %s: %w", args[0], err)
	}
	var diag strings.Builder
	cmd.Stderr = &diag
	p, err := s.Start(cmd)
	if err != nil {
		return fmt.Errorf("starting %s: %w", args[0], err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return fmt.Errorf("%s ended at once: %w: %s", args[0], p.Wait(), strings.TrimSpace(diag.String()))
	}
	return nil
}

// instances counts the agents that this process has started: a name must not come twice while an old one may still end.
var instances atomic.Int64

// startAgents starts the far end first, since the near one dials it.
func (w *world) startAgents(ctx context.Context) error {
	make := func(s *lab.Site) (*labagent.Agent, error) {
		instance := fmt.Sprintf("bench-%d-%d-%s", os.Getpid(), instances.Add(1), s.Name)
		return labagent.New(s, w.session.Binary, instance, filepath.Join(w.dir, instance))
	}
	near, err := make(w.lab.A)
	if err != nil {
		return err
	}
	far, err := make(w.lab.B)
	if err != nil {
		return err
	}
	pacing := ""
	if w.pacing > 0 {
		pacing = fmt.Sprintf(", pacing: %dMbit", w.pacing*8/1_000_000)
	}
	const memory = "history: {memory: 512MiB}"
	farLines := []string{memory, fmt.Sprintf("listen: %q", at(peerPort)), "peers:",
		fmt.Sprintf(`  - {name: a, key: "%s", allow: ["%s/32:%d"]}`, near.Key, wire.Service, serverPort)}
	if w.pacing > 0 { // what the far end sends is the rule's of the connection's client
		farLines = append(farLines, "rules:", fmt.Sprintf("  - {name: back, remote: %s%s}", wire.Near.Masked(), pacing))
	}
	nearLines := []string{memory, "peers:", fmt.Sprintf(`  - {name: b, address: "%s", key: "%s"}`, at(peerPort), far.Key), "rules:",
		fmt.Sprintf("  - {name: bench, remote: %s, ports: [%d], dedup: {peer: b}, splice: off%s}", wire.ServiceNet, serverPort, pacing)}
	if err := errors.Join(far.Configure(farLines...), far.Start()); err != nil {
		return err
	}
	w.agents = append(w.agents, far)
	if _, err := far.WaitReady(ctx, false); err != nil {
		return err
	}
	if err := errors.Join(near.Configure(nearLines...), near.Start()); err != nil {
		return err
	}
	w.agents = append(w.agents, near)
	_, err = near.WaitReady(ctx, true)
	return err
}

// carried is how many connections have gone through the agents.
func (w *world) carried(ctx context.Context) (uint64, error) {
	peers, err := w.agents[len(w.agents)-1].Control().Peers(ctx)
	if err != nil || len(peers) == 0 {
		return 0, fmt.Errorf("asking the agent: %w", err)
	}
	return peers[0].FlowsOpened, nil
}

// close removes the world.
func (w *world) close() error {
	if w.lab == nil {
		return nil
	}
	var errs []error
	for i := range w.agents { // the near one first, which has connections of the client
		errs = append(errs, w.agents[len(w.agents)-1-i].Stop())
	}
	return errors.Join(append(errs, w.lab.Close())...)
}

// client is a connection of the client's, in a process of its own.
type client struct {
	way     string
	cmd     *exec.Cmd
	process *lab.Process
	in      io.WriteCloser
	orders  *json.Encoder
	results *json.Decoder
	diag    strings.Builder
}

func (w *world) connect(ctx context.Context, way string) (*client, error) {
	target := map[string]string{wayAgents: at(serverPort), wayPlain: nearAt(plainPort), wayTLS: nearAt(tlsPort)}[way]
	c := &client{way: way, cmd: w.lab.A.Command(ctx, w.session.Binary, FetchCommand, target)}
	c.cmd.Env, c.cmd.Stderr = child.Env(), &c.diag
	in, inErr := c.cmd.StdinPipe()
	out, outErr := c.cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr); err != nil {
		return nil, fmt.Errorf("starting a client: %w", err)
	}
	c.in, c.orders, c.results = in, json.NewEncoder(in), json.NewDecoder(out)
	var err error
	c.process, err = w.lab.A.Start(c.cmd)
	return c, err
}

func (c *client) do(o order) (r outcome, err error) {
	if err = c.orders.Encode(o); err == nil {
		err = c.results.Decode(&r)
	}
	if err != nil {
		_ = c.process.Kill()
		_ = c.process.Wait()
		err = fmt.Errorf("a client of %s: %w: %s", c.way, err, strings.TrimSpace(c.diag.String()))
	}
	return r, err
}

func (c *client) end() error {
	return errors.Join(c.in.Close(), c.process.Wait())
}
