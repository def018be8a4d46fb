// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// fakeSystem grants what it is told to.
type fakeSystem struct {
	orders  []Order
	fail    error
	reports []Report
}

func (s *fakeSystem) Pull(context.Context) ([]Order, error) { return s.orders, s.fail }
func (s *fakeSystem) Report(_ context.Context, r []Report) error {
	s.reports = r
	return nil
}

func order(id, remote, rate string) Order {
	return Order{Request: Request{ID: id, Remote: []string{remote}, Rate: rate, For: "2h", RTT: "50ms"}}
}

func newBroker(t *testing.T, b *Book, s System, owner string) *Broker {
	return &Broker{Name: "nrps", Owner: owner, Every: time.Second, System: s, Book: b, Log: testLog(t)}
}

func TestBrokerFollows(t *testing.T) {
	c, s := newClock(), &fakeSystem{orders: []Order{order("a", "10.0.0.0/8", "1Gbit"), order("b", "11.0.0.0/8", "nonsense"), order("x/y", "12.0.0.0/8", "1Gbit")}}
	b := newBook(t, c, &memoryStore{}, house())
	broker := newBroker(t, b, s, "noc")
	round := func() {
		t.Helper()
		if err := broker.Round(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	round()
	r, err := b.Get("nrps.a")
	if err != nil || r.Owner != "noc" || r.System != "nrps" || r.State != Active {
		t.Fatalf("%+v, %v", r, err)
	}
	if got := s.reports; len(got) != 3 || got[0].Tuning == nil || got[0].Tuning.WindowBytes != 6_250_000 || got[1].Refused != Malformed || got[2].Refused != Malformed {
		t.Errorf("%+v", got)
	}
	if st := broker.Status(); st.Orders != 3 || st.Refused != 2 {
		t.Errorf("%+v", st)
	}
	c.pass(time.Hour)
	s.orders = []Order{order("a", "10.0.0.0/8", "2Gbit"), order("b", "11.0.0.0/8", "1Gbit")}
	round()
	if now, _ := b.Get("nrps.a"); now.RateBps != 250e6 || !now.Start.Equal(r.Start) || !now.End.Equal(r.End) {
		t.Errorf("%+v; want another rate, and the time that it was first asked for", now)
	}
	s.orders[0].Problem = errDisk
	s.orders = s.orders[:1]
	round()
	if now, _ := b.Get("nrps.a"); now.State != Active {
		t.Errorf("an order that cannot be read has ended what it granted: %+v", now)
	}
	if now, _ := b.Get("nrps.b"); now.State != Ended || now.EndedBy != "system nrps" {
		t.Errorf("what the system no longer has goes on: %+v", now)
	}
	s.fail = errDisk
	if err := broker.Round(context.Background()); err == nil {
		t.Error("no error")
	}
	if now, _ := b.Get("nrps.a"); now.State != Active {
		t.Errorf("a system that does not answer has ended %+v", now)
	}
	s.fail, s.orders[0].Problem = nil, nil
	if _, err := b.End("nrps.a", root); err != nil {
		t.Fatal(err)
	}
	round()
	if now, _ := b.Get("nrps.a"); now.State != Ended {
		t.Errorf("what was ended here has come back: %+v", now)
	}
}

// What is refused for want of room is granted once there is some, and a system's owner is no way around quotas and roles.
func TestBrokerIsBound(t *testing.T) {
	b := newBook(t, newClock(), &memoryStore{}, house())
	s := &fakeSystem{orders: []Order{order("a", "10.0.0.0/8", "1Gbit")}}
	broker := newBroker(t, b, s, "astro")
	_ = broker.Round(context.Background())
	if s.reports[0].Refused != OverQuota || s.reports[0].Reservation != "" {
		t.Errorf("%+v", s.reports)
	}
	p := house()
	p.Owners[0].RateBps = 0
	b.Configure(p)
	_ = broker.Round(context.Background())
	if s.reports[0].State != Active {
		t.Errorf("%+v", s.reports)
	}
	s.orders = []Order{order("b", "11.0.0.0/8", "1Mbit")}
	s.orders[0].Owner = "bio"
	_ = broker.Round(context.Background())
	if s.reports[0].Refused != Unauthorised {
		t.Errorf("%+v", s.reports)
	}
	s.orders = make([]Order, MaxOrders+1)
	if err := broker.Round(context.Background()); err == nil || !strings.Contains(err.Error(), "the most is 1024") {
		t.Errorf("%v", err)
	}
}

func TestBackoff(t *testing.T) {
	broker := newBroker(t, newBook(t, newClock(), &memoryStore{}, Policy{}), nil, "")
	pause := broker.Every
	for range 20 {
		next := broker.note(errDisk, pause)
		if next < pause || next > maxBackoff {
			t.Errorf("after %s %s", pause, next)
		}
		pause = next
	}
	if broker.Status().Problem == "" || pause != maxBackoff || broker.note(nil, pause) != broker.Every || broker.Status().Problem != "" {
		t.Errorf("%s, %+v", pause, broker.Status())
	}
}

func TestDirectory(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("night.json", `{"remote": ["10.0.0.0/8"], "rate": "1Gbit", "for": "2h", "rtt": "135ms"}`)
	write("typo.json", `{"remotes": ["11.0.0.0/8"]}`)
	write(".half.json", `{`)
	write("README", "not a reservation")
	write("large.json", strings.Repeat(" ", maxOrderBytes+1))
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link.json")); err != nil {
		t.Fatal(err)
	}
	b := newBook(t, newClock(), &memoryStore{}, house())
	d := &Directory{Path: dir}
	broker := newBroker(t, b, d, "noc")
	if err := broker.Round(context.Background()); err != nil {
		t.Fatal(err)
	}
	read := func(name string) (r Report) {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(dir, "report", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := read("night.json"); r.State != Active || r.Tuning.WindowBytes != 16_875_000 || r.Reservation != "nrps.night" {
		t.Errorf("%+v", r)
	}
	if r := read("typo.json"); r.Refused != Malformed || !strings.Contains(r.Error, `unknown field "remotes"`) {
		t.Errorf("%+v", r)
	}
	if r := read("large.json"); r.Refused != Malformed || !strings.Contains(r.Error, "more than 65536 bytes") {
		t.Errorf("%+v", r)
	}
	if r := read("link.json"); r.Error == "" {
		t.Errorf("%+v", r)
	}
	if err := os.Remove(filepath.Join(dir, "night.json")); err != nil {
		t.Fatal(err)
	}
	if err := broker.Round(context.Background()); err != nil {
		t.Fatal(err)
	}
	if r, _ := b.Get("nrps.night"); r.State != Ended {
		t.Errorf("its file is gone, and it is %s", r.State)
	}
	if _, err := os.Stat(filepath.Join(dir, "report", "night.json")); err == nil {
		t.Error("its report is still there")
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := broker.Round(context.Background()); err == nil || !strings.Contains(err.Error(), "chmod o-w") {
		t.Errorf("%v", err)
	}
	broker.System = &Directory{Path: filepath.Join(dir, "none")}
	if err := broker.Round(context.Background()); err == nil || !strings.Contains(err.Error(), "does not exist; make it") {
		t.Errorf("%v", err)
	}
}

// webSystem is a provisioning system that speaks what is documented.
type webSystem struct {
	mu      sync.Mutex
	answer  string
	status  int
	reports []Report
	token   string
}

func (s *webSystem) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = r.Header.Get("Authorization")
	switch r.Method + " " + r.URL.Path {
	case "GET /api/reservations":
		w.WriteHeader(s.status)
		fmt.Fprint(w, s.answer)
	case "POST /api/reports":
		var body struct {
			Host    string
			Reports []Report
		}
		if json.NewDecoder(r.Body).Decode(&body) != nil || body.Host != "here" {
			w.WriteHeader(http.StatusBadRequest)
		}
		s.reports = body.Reports
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func TestWeb(t *testing.T) {
	s := &webSystem{status: 200, answer: `{"version": 7, "reservations": [
		{"id": "a", "remote": ["10.0.0.0/8"], "rate": "1Gbit", "for": "2h", "rtt": "135ms", "owner": "bio"},
		{"id": "b", "remote": ["11.0.0.0/8"], "rat": "1Gbit", "for": "2h"}]}`}
	server := httptest.NewServer(s)
	defer server.Close()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := newBook(t, newClock(), &memoryStore{}, house())
	web := NewWeb(server.URL+"/api/", token, "here", "default")
	web.limit, web.client.Timeout = 64<<10, 2*time.Minute // a busy machine is no subject of this test
	broker := newBroker(t, b, web, "noc")
	if err := broker.Round(context.Background()); err != nil {
		t.Fatal(err)
	}
	if s.token != "Bearer s3cret" || len(s.reports) != 2 || s.reports[0].Tuning.WindowBytes != 16_875_000 || s.reports[1].Refused != Malformed {
		t.Errorf("%q, %+v", s.token, s.reports)
	}
	if r, _ := b.Get("nrps.a"); r.Owner != "bio" {
		t.Errorf("%+v", r)
	}
	for _, c := range []struct {
		name, answer, want string
		status             int
	}{
		{"an error", "out of order", `answered 500 Internal Server Error: "out of order"`, 500},
		{"elsewhere", "", "answered 302", 302},
		{"no JSON", "<html>", "not the JSON that is documented", 200},
		{"no list", "{}", "has no `reservations`", 200},
		{"no id", `{"reservations": [{"rat": 1}]}`, "a reservation without an id", 200},
		{"endless", strings.Repeat(" ", 65<<10), "more than 64 KiB", 200},
	} {
		s.mu.Lock()
		s.answer, s.status = c.answer, c.status
		s.mu.Unlock()
		if err := broker.Round(context.Background()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
		if r, _ := b.Get("nrps.a"); r.State != Active {
			t.Errorf("%s has ended what was granted", c.name)
		}
	}
	s.mu.Lock()
	s.answer, s.status = `{"reservations": []}`, 200
	s.mu.Unlock()
	if err := broker.Round(context.Background()); err != nil {
		t.Fatal(err)
	}
	if r, _ := b.Get("nrps.a"); r.State != Ended {
		t.Errorf("%+v", r)
	}
	if err := os.WriteFile(token, []byte("two\nlines"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := broker.Round(context.Background()); err == nil || !strings.Contains(err.Error(), "not one line") {
		t.Errorf("%v", err)
	}
}
