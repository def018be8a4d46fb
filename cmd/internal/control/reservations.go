// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/trunkline/trunkline/cmd/internal/reserve"
)

// Reserver is the part of the agent that keeps reservations. It decides itself who may change them.
type Reserver interface {
	Reservations() (Reservations, error)
	Reservation(id string) (reserve.Reservation, error)
	Reserve(reserve.Request, reserve.Caller) (reserve.Reservation, error)
	ChangeReservation(id string, q reserve.Request, by reserve.Caller) (reserve.Reservation, error)
	EndReservation(id string, by reserve.Caller) (reserve.Reservation, error)
}

// Reservations are all of them, with the paths that they are on.
type Reservations struct {
	Now          time.Time              `json:"now"`
	Reservations []reserve.Reservation  `json:"reservations"` // in the order of their starts; also those that ended within a week
	Paths        []ReservedPath         `json:"paths"`
	Systems      []reserve.SystemStatus `json:"systems"`  // that reservations come from
	Problems     []string               `json:"problems"` // what keeps reservations from being of use
}

// ReservedPath is a path whose capacity the configuration declares.
type ReservedPath struct {
	Name        string         `json:"name"`
	Remote      []netip.Prefix `json:"remote"`
	CapacityBps uint64         `json:"capacity_Bps"` // bytes per second
}

// codes are the statuses of refusals.
var codes = map[reserve.Why]int{
	reserve.Malformed: http.StatusBadRequest, reserve.Expired: http.StatusGone, reserve.Unauthorised: http.StatusForbidden,
	reserve.OverQuota: http.StatusConflict, reserve.Overlapping: http.StatusConflict, reserve.Full: http.StatusConflict,
	reserve.Unknown: http.StatusNotFound,
}

func handleReservations(mux *http.ServeMux, b Reserver, log *slog.Logger) {
	mux.Handle("GET /v1/reservations", read(func(*http.Request) (any, error) { return b.Reservations() }))
	mux.Handle("GET /v1/reservations/{id}", read(func(r *http.Request) (any, error) { return b.Reservation(r.PathValue("id")) }))
	mux.Handle("POST /v1/reservations", reserving(log, "making a reservation", func(r *http.Request, by reserve.Caller) (any, error) {
		q, err := requestOf(r)
		if err != nil {
			return nil, err
		}
		return b.Reserve(q, by)
	}))
	mux.Handle("PATCH /v1/reservations/{id}", reserving(log, "changing a reservation", func(r *http.Request, by reserve.Caller) (any, error) {
		q, err := requestOf(r)
		if err != nil {
			return nil, err
		}
		return b.ChangeReservation(r.PathValue("id"), q, by)
	}))
	mux.Handle("DELETE /v1/reservations/{id}", reserving(log, "ending a reservation", func(r *http.Request, by reserve.Caller) (any, error) {
		return b.EndReservation(r.PathValue("id"), by)
	}))
}

// reserving finds out who asks; what they may do is for the book to say.
func reserving(log *slog.Logger, what string, f func(*http.Request, reserve.Caller) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxHeaderBytes)
		by, ok := callerOf(r)
		if !ok {
			reply(w, http.StatusForbidden, failure{Error: "the kernel does not say who asks; use the control socket"})
			return
		}
		v, err := f(r, by)
		log.Info("asked for a change", "what", what, "by", by.Name, "id", r.PathValue("id"), "err", err)
		answer(w, v, err)
	})
}

func requestOf(r *http.Request) (q reserve.Request, err error) {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&q); err != nil {
		return q, &reserve.Refusal{Why: reserve.Malformed, Text: fmt.Sprintf("the request is not the JSON of a reservation: %v", err)}
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return q, &reserve.Refusal{Why: reserve.Malformed, Text: "something follows the request's JSON; send one object"}
	}
	return q, nil
}

// Reservations reads all reservations.
func (c *Client) Reservations(ctx context.Context) (r Reservations, err error) {
	return r, c.call(ctx, http.MethodGet, "reservations", &r)
}

// Reservation reads one.
func (c *Client) Reservation(ctx context.Context, id string) (r reserve.Reservation, err error) {
	return r, c.call(ctx, http.MethodGet, "reservations/"+url.PathEscape(id), &r)
}

// Reserve asks for one; a refusal is a *reserve.Refusal.
func (c *Client) Reserve(ctx context.Context, q reserve.Request) (r reserve.Reservation, err error) {
	return r, c.send(ctx, http.MethodPost, "reservations", q, &r)
}

// ChangeReservation changes what q names of one.
func (c *Client) ChangeReservation(ctx context.Context, id string, q reserve.Request) (r reserve.Reservation, err error) {
	return r, c.send(ctx, http.MethodPatch, "reservations/"+url.PathEscape(id), q, &r)
}

// EndReservation ends one at once.
func (c *Client) EndReservation(ctx context.Context, id string) (r reserve.Reservation, err error) {
	return r, c.call(ctx, http.MethodDelete, "reservations/"+url.PathEscape(id), &r)
}
