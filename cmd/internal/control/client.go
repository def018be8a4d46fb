// SPDX-License-Identifier: Apache-2.0

package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNotRunning says that no agent answers on the socket.
var ErrNotRunning = errors.New("no agent runs")

// maxAnswerBytes bounds what a client reads: 65,536 flows of less than 1 KiB each fit well.
const maxAnswerBytes = 256 << 20

// Client speaks with one agent.
type Client struct {
	socket, instance string
	http             *http.Client
}

// NewClient speaks with the agent of an instance through its socket. Without an instance, errors name the socket alone.
// Nothing is opened yet.
func NewClient(socket, instance string) *Client {
	var d net.Dialer
	return &Client{socket: socket, instance: instance, http: &http.Client{
		Timeout: 2 * requestTimeout,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return d.DialContext(ctx, "unix", socket)
			},
		},
	}}
}

// Status reads the agent as a whole.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	return s, c.call(ctx, http.MethodGet, "status", &s)
}

// Flows reads every flow that the agent knows.
func (c *Client) Flows(ctx context.Context) (f []Flow, err error) {
	return f, c.call(ctx, http.MethodGet, "flows", &f)
}

// Paths reads what was measured towards each destination prefix.
func (c *Client) Paths(ctx context.Context) (p []Path, err error) {
	return p, c.call(ctx, http.MethodGet, "paths", &p)
}

// Peers reads the peers.
func (c *Client) Peers(ctx context.Context) (p []Peer, err error) {
	return p, c.call(ctx, http.MethodGet, "peers", &p)
}

// History reads what histories there are.
func (c *Client) History(ctx context.Context) (h Histories, err error) {
	return h, c.call(ctx, http.MethodGet, "history", &h)
}

// PurgeHistory has the agent forget histories: of a peer and of a group, or of all ("").
func (c *Client) PurgeHistory(ctx context.Context, peer, group string) (p Purged, err error) {
	q := url.Values{"peer": {peer}, "group": {group}}
	return p, c.call(ctx, http.MethodPost, "history/purge?"+q.Encode(), &p)
}

// Explain asks which rule applies.
func (c *Client) Explain(ctx context.Context, remote netip.AddrPort) (e Explanation, err error) {
	return e, c.call(ctx, http.MethodGet, "explain?remote="+url.QueryEscape(remote.String()), &e)
}

// Reload has the agent read its file again.
func (c *Client) Reload(ctx context.Context) (r Reloaded, err error) {
	return r, c.call(ctx, http.MethodPost, "reload", &r)
}

// Drain has the agent steer no more. It returns at once.
func (c *Client) Drain(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, "drain", nil)
}

func (c *Client) call(ctx context.Context, method, what string, into any) error {
	return c.send(ctx, method, what, nil, into)
}

func (c *Client) send(ctx context.Context, method, what string, body, into any) error {
	var content io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("writing JSON: %w", err)
		}
		content = bytes.NewReader(data)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://agent/v1/"+what, content)
	if err != nil {
		return fmt.Errorf("asking the agent: %w", err)
	}
	res, err := c.http.Do(r)
	if err != nil {
		return c.explain(err)
	}
	defer res.Body.Close()
	answer := json.NewDecoder(io.LimitReader(res.Body, maxAnswerBytes))
	if res.StatusCode != http.StatusOK {
		var f failure
		if err := answer.Decode(&f); err != nil || f.Error == "" {
			return fmt.Errorf("the agent answered %s; is it of this version?", res.Status)
		}
		return refusedAnswer(f)
	}
	if into == nil {
		return nil
	}
	if err := answer.Decode(into); err != nil {
		return fmt.Errorf("reading the agent's answer: %w", err)
	}
	return nil
}

// explain turns what a dial gives into what a person can act on.
func (c *Client) explain(err error) error {
	var timeout net.Error
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%w%s (no socket at %s); start it: systemctl start trunkline, or trunkline agent --config FILE",
			ErrNotRunning, c.named(" for"), c.socket)
	case errors.Is(err, unix.ECONNREFUSED) && !isSocket(c.socket):
		return fmt.Errorf("%s is not a socket; name the control.sock of an agent", c.socket)
	case errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("%w%s (nobody listens on %s: it was killed); start it: systemctl start trunkline, or trunkline agent --config FILE",
			ErrNotRunning, c.named(" for"), c.socket)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("permission denied on %s; use sudo, or become a member of the configured `group`", c.socket)
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("the agent%s does not answer within %s; see its log (journalctl -u trunkline)",
			c.named(" of"), (2 * requestTimeout).Round(time.Second))
	}
	return fmt.Errorf("asking the agent%s: %w", c.named(" of"), err)
}

// named says which instance it is, if that is known.
func (c *Client) named(preposition string) string {
	if c.instance == "" {
		return ""
	}
	return preposition + " instance " + c.instance
}

func isSocket(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&os.ModeSocket != 0
}
