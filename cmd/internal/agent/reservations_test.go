// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/trunkline/trunkline/cmd/internal/control"
	"github.com/trunkline/trunkline/cmd/internal/reserve"
	"github.com/trunkline/trunkline/internal/testkit"
)

const reservedRules = `rules: [{name: wan, remote: 192.0.2.0/24, window: reserved}]
reservations:
  owners: [{name: astro, rate: 2Gbit}]
  paths: [{name: lab, remote: [192.0.2.0/24], capacity: 1Gbit}]
  probe_port: off
`

// A reservation is in force at once, survives a restart of the agent, and ends when it is ended.
func TestReservationsSurvive(t *testing.T) {
	h := newHost(t)
	c := h.write(reservedRules)
	client, stop := h.run(c)
	ctx := context.Background()
	q := reserve.Request{ID: "run", Owner: "astro", Remote: []string{"192.0.2.0/24"}, Rate: "600Mbit", For: "2h", RTT: "135ms"}
	r, err := client.Reserve(ctx, q)
	if err != nil || r.State != reserve.Active || r.Tuning.WindowBytes != 10_125_000 {
		t.Fatalf("%+v, %v", r, err)
	}
	h.write("rules: [{name: wan, remote: 192.0.2.0/24}]\n")
	if _, err := client.Reload(ctx); err != nil {
		t.Fatal(err)
	}
	if all, err := client.Reservations(ctx); err != nil || len(all.Problems) != 1 || !strings.Contains(all.Problems[0], "no rule has window: reserved") {
		t.Errorf("%+v, %v", all.Problems, err)
	}
	h.write(reservedRules)
	if _, err := client.Reload(ctx); err != nil {
		t.Fatal(err)
	}
	q.ID = "other"
	if _, err := client.Reserve(ctx, q); reserve.WhyOf(err) != reserve.Overlapping {
		t.Errorf("%v", err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	client, stop = h.run(c)
	if r, err = client.Reservation(ctx, "run"); err != nil || r.State != reserve.Active || r.Owner != "astro" {
		t.Errorf("after a restart: %+v, %v", r, err)
	}
	h.write(strings.Replace(reservedRules, "1Gbit", "2Gbit", 1))
	if _, err := client.Reload(ctx); err != nil {
		t.Fatal(err)
	}
	if all, err := client.Reservations(ctx); err != nil || len(all.Reservations) != 1 || all.Paths[0].CapacityBps != 250e6 || len(all.Problems) > 0 {
		t.Errorf("after a reload: %+v, %v", all, err)
	}
	if _, err := client.EndReservation(ctx, "run"); err != nil {
		t.Error(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	h.wantNothingLeft()
}

// Where no connection tells the round-trip time, the agent asks the end point itself; one that is not there is no reason to end.
func TestReservedPathIsProbed(t *testing.T) {
	h := newHost(t)
	address := ownAddress(t)
	l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Skip("this machine has no address to listen on: ", err)
	}
	defer l.Close()
	client, stop := h.run(h.write(reservedRules))
	ctx := context.Background()
	_, err = client.Reserve(ctx, reserve.Request{Owner: "astro", Remote: []string{address}, Rate: "1Gbit", For: "2h", Probe: []string{l.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(testkit.Wait(30 * time.Second)); ; time.Sleep(20 * time.Millisecond) {
		r, err := client.Reservation(ctx, "r1")
		if err != nil {
			t.Fatal(err)
		}
		if r.State == reserve.Active && r.EndPoints[0].Source == "probe" && r.EndPoints[0].RTTus > 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("not measured: %+v", r)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// ownAddress is one of this machine's that is not loopback.
func ownAddress(t *testing.T) string {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	t.Skip("this machine has no IPv4 address but loopback")
	return ""
}

// A database that cannot be opened is left alone, and nothing is granted that a restart would forget.
func TestUnreadableReservations(t *testing.T) {
	h := newHost(t)
	c := h.write(reservedRules)
	if err := os.MkdirAll(c.ReservationDB(), 0o700); err != nil { // a directory in its place
		t.Fatal(err)
	}
	client, stop := h.run(c)
	ctx := context.Background()
	if s, err := client.Status(ctx); err != nil || s.Health != control.Degraded || !strings.Contains(strings.Join(s.Problems, " "), "reservations cannot be read") {
		t.Errorf("%+v, %v", s.Problems, err)
	}
	_, err := client.Reserve(ctx, reserve.Request{Owner: "astro", Remote: []string{"192.0.2.0/24"}, Rate: "1Mbit", For: "1h"})
	var refused *reserve.Refusal
	if err == nil || errors.As(err, &refused) || !strings.Contains(err.Error(), "cannot be written down") {
		t.Errorf("%v", err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
