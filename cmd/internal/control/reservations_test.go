// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/cmd/internal/reserve"
)

type noStore struct{}

func (noStore) Save(map[string][]byte) error { return nil }

// bookFake answers from a real book.
type bookFake struct{ *reserve.Book }

func newBookFake() bookFake {
	b, err := reserve.NewBook(reserve.SystemClock(), noStore{}, reserve.Policy{}, nil)
	if err != nil {
		panic(err)
	}
	return bookFake{b}
}

func (b bookFake) Reservations() (Reservations, error) {
	return Reservations{Reservations: b.List()}, nil
}
func (b bookFake) Reservation(id string) (reserve.Reservation, error) { return b.Get(id) }
func (b bookFake) Reserve(q reserve.Request, by reserve.Caller) (reserve.Reservation, error) {
	return b.Add(q, by)
}
func (b bookFake) ChangeReservation(id string, q reserve.Request, by reserve.Caller) (reserve.Reservation, error) {
	return b.Change(id, q, by)
}
func (b bookFake) EndReservation(id string, by reserve.Caller) (reserve.Reservation, error) {
	return b.End(id, by)
}

func TestReservationCalls(t *testing.T) {
	c := NewClient(serve(t, &fake{Reserver: newBookFake()}), "t")
	ctx := context.Background()
	r, err := c.Reserve(ctx, reserve.Request{Remote: []string{"10.0.0.0/8"}, Rate: "1Gbit", For: "2h", RTT: "10ms"})
	if err != nil || r.ID != "r1" || r.State != reserve.Active || r.Tuning.WindowBytes != 1_250_000 {
		t.Fatalf("%+v, %v", r, err)
	}
	if r, err = c.ChangeReservation(ctx, "r1", reserve.Request{Rate: "2Gbit"}); err != nil || r.RateBps != 250e6 {
		t.Errorf("%+v, %v", r, err)
	}
	if all, err := c.Reservations(ctx); err != nil || len(all.Reservations) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
	if r, err = c.EndReservation(ctx, "r1"); err != nil || r.State != reserve.Ended {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err = c.Reservation(ctx, "r1"); err != nil || r.State != reserve.Ended {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err = c.Reservation(ctx, "a/b c"); reserve.WhyOf(err) != reserve.Unknown || !strings.Contains(err.Error(), `"a/b c"`) {
		t.Errorf("%v", err)
	}
	if _, err = c.Reserve(ctx, reserve.Request{Remote: []string{"10.0.0.0/8"}}); reserve.WhyOf(err) != reserve.Malformed {
		t.Errorf("%v", err)
	}
}

// Who may open the socket may not yet reserve, and what is no reservation is refused before it is looked at.
func TestReservationRequests(t *testing.T) {
	good := `{"remote":["10.0.0.0/8"],"rate":"1Gbit","for":"2h"}`
	for _, c := range []struct {
		name, body, want string
		uid              *uint32
		code             int
	}{
		{"no credentials", good, "does not say who asks", nil, 403},
		{"a stranger", good, `"refused":"unauthorised"`, new(uint32(4711)), 403},
		{"root", good, `"owner":"root"`, new(uint32(0)), 200},
		{"no JSON", "remote", "not the JSON of a reservation", new(uint32(0)), 400},
		{"a key too many", `{"remotes":["10.0.0.0/8"]}`, `unknown field \"remotes\"`, new(uint32(0)), 400},
		{"two", good + good, "something follows", new(uint32(0)), 400},
		{"a long one", `{"remote":["` + strings.Repeat("x", 100_000) + `"]}`, "too large", new(uint32(0)), 400},
	} {
		h := handler(&fake{Reserver: newBookFake()}, slog.New(slog.DiscardHandler))
		r := httptest.NewRequest(http.MethodPost, "/v1/reservations", strings.NewReader(c.body))
		if c.uid != nil {
			r = r.WithContext(context.WithValue(r.Context(), peerKey{}, &unix.Ucred{Uid: *c.uid, Gid: *c.uid}))
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s: %d %s, want %d %s", c.name, w.Code, w.Body, c.code, c.want)
		}
	}
}
