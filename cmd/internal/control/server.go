// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/cmd/internal/reserve"
)

// Backend is the agent behind the socket.
type Backend interface {
	Status() (Status, error)
	Flows() ([]Flow, error)
	Paths() ([]Path, error)
	Peers() ([]Peer, error)
	History() (Histories, error)
	Explain(remote netip.AddrPort) (Explanation, error)
	Reload() (Reloaded, error)
	PurgeHistory(peer, group string) (Purged, error) // "": all of them
	Drain() error                                    // returns at once; Status tells how it goes on
	Reserver
}

const (
	requestTimeout = 10 * time.Second
	maxHeaderBytes = 16 << 10
)

// Serve answers on l until ctx ends, and closes l.
func Serve(ctx context.Context, l net.Listener, b Backend, log *slog.Logger) error {
	s := &http.Server{
		Handler:           handler(b, log),
		ReadHeaderTimeout: requestTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      2 * requestTimeout,
		IdleTimeout:       requestTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ConnContext:       withPeer,
	}
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	if err := s.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the control socket: %w", err)
	}
	return nil
}

func handler(b Backend, log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /v1/status", read(func(*http.Request) (any, error) { return b.Status() }))
	mux.Handle("GET /v1/flows", read(func(*http.Request) (any, error) { return b.Flows() }))
	mux.Handle("GET /v1/paths", read(func(*http.Request) (any, error) { return b.Paths() }))
	mux.Handle("GET /v1/peers", read(func(*http.Request) (any, error) { return b.Peers() }))
	mux.Handle("GET /v1/history", read(func(*http.Request) (any, error) { return b.History() }))
	mux.Handle("GET /v1/explain", read(func(r *http.Request) (any, error) {
		remote, err := netip.ParseAddrPort(r.URL.Query().Get("remote"))
		if err != nil {
			return nil, badRequest{fmt.Errorf("remote: %w", err)}
		}
		return b.Explain(remote)
	}))
	mux.Handle("POST /v1/reload", change(log, "reload", func(*http.Request) (any, error) { return b.Reload() }))
	mux.Handle("POST /v1/history/purge", change(log, "purging histories", func(r *http.Request) (any, error) {
		return b.PurgeHistory(r.URL.Query().Get("peer"), r.URL.Query().Get("group"))
	}))
	mux.Handle("POST /v1/drain", change(log, "drain", func(*http.Request) (any, error) { return struct{}{}, b.Drain() }))
	handleReservations(mux, b, log)
	return mux
}

// badRequest is an error of the caller's.
type badRequest struct{ error }

func read(f func(*http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, err := f(r)
		answer(w, v, err)
	})
}

func change(log *slog.Logger, what string, f func(*http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxHeaderBytes)
		who, ok := r.Context().Value(peerKey{}).(*unix.Ucred)
		if !ok || who.Uid != 0 && int(who.Uid) != os.Geteuid() {
			reply(w, http.StatusForbidden, failure{Error: what + " is for root; use sudo"})
			return
		}
		log.Info("asked for a change", "what", what, "pid", who.Pid, "uid", who.Uid)
		v, err := f(r)
		answer(w, v, err)
	})
}

// failure is the body of every answer that is not 200.
type failure struct {
	Error   string `json:"error"`
	Refused string `json:"refused,omitempty"` // why a reservation is refused, in a word: see reserve.Why
}

func answer(w http.ResponseWriter, v any, err error) {
	var bad badRequest
	switch why := reserve.WhyOf(err); {
	case errors.As(err, &bad):
		reply(w, http.StatusBadRequest, failure{Error: err.Error()})
	case codes[why] != 0:
		reply(w, codes[why], failure{err.Error(), string(why)})
	case err != nil:
		reply(w, http.StatusUnprocessableEntity, failure{Error: err.Error()})
	default:
		reply(w, http.StatusOK, v)
	}
}

func reply(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// The client has gone if this fails; there is nobody to tell.
	_ = json.NewEncoder(w).Encode(v)
}

type peerKey struct{}

// withPeer notes who is at the other end. The kernel vouches for it as of connect().
func withPeer(ctx context.Context, c net.Conn) context.Context {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return ctx
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err != nil || credErr != nil {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, cred)
}
