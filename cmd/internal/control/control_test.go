// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

type fake struct {
	Reserver
	reloadErr error
	drained   bool
	purged    string
}

func (f *fake) Status() (Status, error) { return Status{Instance: "t", Health: Healthy, PID: 7}, nil }
func (f *fake) Paths() ([]Path, error)  { return []Path{{Flows: 4}}, nil }
func (f *fake) Flows() ([]Flow, error)  { return []Flow{{Cookie: 1, Kind: "steered"}}, nil }
func (f *fake) Peers() ([]Peer, error)  { return nil, errors.New("no peers today") }
func (f *fake) History() (Histories, error) {
	return Histories{Groups: []GroupHistory{{Group: "web"}}}, nil
}
func (f *fake) PurgeHistory(peer, group string) (Purged, error) {
	f.purged = peer + " " + group
	return Purged{Histories: 1}, nil
}
func (f *fake) Explain(r netip.AddrPort) (Explanation, error) {
	return Explanation{Remote: r, Matched: true}, nil
}
func (f *fake) Reload() (Reloaded, error) { return Reloaded{Rules: 2}, f.reloadErr }
func (f *fake) Drain() error              { f.drained = true; return nil }

func serve(t *testing.T, b Backend) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "run", "control.sock")
	l, err := Listen(socket, "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- Serve(ctx, l, b, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(socket); err == nil {
			t.Error("the socket file stays behind")
		}
	})
	return socket
}

func TestCalls(t *testing.T) {
	b := &fake{}
	c := NewClient(serve(t, b), "t")
	ctx := context.Background()
	if s, err := c.Status(ctx); err != nil || s.PID != 7 {
		t.Errorf("status: %+v, %v", s, err)
	}
	if f, err := c.Flows(ctx); err != nil || len(f) != 1 || f[0].Kind != "steered" {
		t.Errorf("flows: %+v, %v", f, err)
	}
	if p, err := c.Paths(ctx); err != nil || len(p) != 1 || p[0].Flows != 4 {
		t.Errorf("paths: %+v, %v", p, err)
	}
	if _, err := c.Peers(ctx); err == nil || err.Error() != "no peers today" {
		t.Errorf("peers: %v, want the backend's error as it is", err)
	}
	remote := netip.MustParseAddrPort("[2001:db8::1]:443")
	if e, err := c.Explain(ctx, remote); err != nil || e.Remote != remote {
		t.Errorf("explain: %+v, %v", e, err)
	}
	if h, err := c.History(ctx); err != nil || len(h.Groups) != 1 {
		t.Errorf("history: %+v, %v", h, err)
	}
	if p, err := c.PurgeHistory(ctx, "b&c", "web"); err != nil || p.Histories != 1 || b.purged != "b&c web" {
		t.Errorf("purge: %+v, %v, of %q", p, err, b.purged)
	}
	if r, err := c.Reload(ctx); err != nil || r.Rules != 2 {
		t.Errorf("reload: %+v, %v", r, err)
	}
	b.reloadErr = errors.New("t.yaml:1:1: bad")
	if _, err := c.Reload(ctx); err == nil || err.Error() != "t.yaml:1:1: bad" {
		t.Errorf("reload: %v, want the file's problem", err)
	}
	if err := c.Drain(ctx); err != nil || !b.drained {
		t.Errorf("drain: %v, drained %v", err, b.drained)
	}
}

func TestSocketMode(t *testing.T) {
	socket := serve(t, &fake{})
	info, err := os.Stat(socket)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o660 {
		t.Errorf("mode %o, want 660", got)
	}
	left, err := os.ReadDir(filepath.Dir(socket))
	if err != nil || len(left) != 1 {
		t.Errorf("the run directory holds %v, want the socket alone", left)
	}
}

func TestSecondAgentIsRefused(t *testing.T) {
	socket := serve(t, &fake{})
	if l, err := Listen(socket, ""); !errors.Is(err, ErrInUse) {
		t.Errorf("error %v, want %v (listener %v)", err, ErrInUse, l)
	}
}

func TestStaleSocketIsReplaced(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "control.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	if _, err := NewClient(socket, "t").Status(context.Background()); !errors.Is(err, ErrNotRunning) || !strings.Contains(err.Error(), "killed") {
		t.Errorf("error %v, want one that says it was killed", err)
	}
	next, err := Listen(socket, "")
	if err != nil {
		t.Fatal(err)
	}
	next.Close()
}

// A successor's socket is not removed by the one that goes.
func TestCloseSparesASuccessor(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "control.sock")
	old, err := Listen(socket, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	next, err := Listen(socket, "")
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	old.Close()
	if _, err := os.Lstat(socket); err != nil {
		t.Error("the successor's socket is gone")
	}
}

func TestNoAgent(t *testing.T) {
	_, err := NewClient(filepath.Join(t.TempDir(), "none.sock"), "east").Status(context.Background())
	if !errors.Is(err, ErrNotRunning) || !strings.Contains(err.Error(), "instance east") {
		t.Errorf("error %v", err)
	}
}

func TestUnknownGroup(t *testing.T) {
	if _, err := Listen(filepath.Join(t.TempDir(), "c.sock"), "no-such-group"); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("error %v", err)
	}
}

func TestPathTooLong(t *testing.T) {
	path := "/tmp/" + strings.Repeat("x", 120) + "/control.sock"
	if _, err := Listen(path, ""); err == nil || !strings.Contains(err.Error(), "shorter run_dir") {
		t.Errorf("error %v", err)
	}
}

// Changes need root whoever may open the socket; without credentials there is no guessing.
func TestChangesAreForRoot(t *testing.T) {
	b := &fake{}
	h := handler(b, slog.New(slog.DiscardHandler))
	for _, cred := range []*unix.Ucred{nil, {Uid: 4711}} {
		r := httptest.NewRequest(http.MethodPost, "/v1/drain", nil)
		if cred != nil {
			r = r.WithContext(context.WithValue(r.Context(), peerKey{}, cred))
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "for root") || b.drained {
			t.Errorf("%+v: %d %s, drained %v", cred, w.Code, w.Body, b.drained)
		}
	}
}

func TestBadRequests(t *testing.T) {
	h := handler(&fake{}, slog.New(slog.DiscardHandler))
	for _, c := range []struct {
		method, path string
		code         int
	}{
		{"GET", "/v1/explain?remote=nonsense", 400}, {"GET", "/v1/explain", 400}, {"GET", "/v1/reload", 405},
		{"POST", "/v1/status", 405}, {"GET", "/v2/status", 404},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		if w.Code != c.code {
			t.Errorf("%s %s: %d, want %d", c.method, c.path, w.Code, c.code)
		}
	}
}
