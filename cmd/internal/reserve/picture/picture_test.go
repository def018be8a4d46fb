// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/trunkline/trunkline/cmd/internal/reserve"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func one(id, remote string, rate uint64, from, to time.Duration, s reserve.State) reserve.Reservation {
	return reserve.Reservation{ID: id, Owner: "a<b", RateBps: rate, Start: noon.Add(from), End: noon.Add(to), State: s,
		EndPoints: []reserve.EndPoint{{Remote: netip.MustParsePrefix(remote)}}}
}

func sample() Picture {
	p := New(noon, time.Time{}, time.Time{}, []reserve.Reservation{
		one("r1", "203.0.113.0/24", 75e6, 0, 12*time.Hour, reserve.Active),
		one("r2", "203.0.113.9/32", 50e6, 6*time.Hour, 24*time.Hour, reserve.Pending),
		one("r3", "198.51.100.0/24", 50e6, 0, 2*time.Hour, reserve.Suspended),
	}, []Declared{{"kreonet", []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}, 125e6}})
	p.Zone = time.UTC
	return p
}

func TestText(t *testing.T) {
	var b bytes.Buffer
	sample().Text(&b)
	for _, want := range []string{"kreonet 1 Gbit/s", "  r1 a<b 600 Mbit/s", "198.51.100.0/24, capacity not", "╷12:00", "╷18:00", "▒▒▒▒▒", "from 2026-12-01 12:00 UTC to 2026-12-02 12:00 UTC"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in\n%s", want, b.String())
		}
	}
	for line := range strings.SplitSeq(b.String(), "\n") {
		if n := utf8.RuneCountInString(line); n > 100 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if got := strings.Count(strings.Split(b.String(), "\n")[2], "█"); got != 34 {
		t.Errorf("half a day is %d of 68 cells\n%s", got, b.String())
	}
	b.Reset()
	New(noon, time.Time{}, time.Time{}, nil, nil).Text(&b)
	if !strings.Contains(b.String(), "nothing is reserved") {
		t.Errorf("%s", b.String())
	}
}

func TestSVGIsXML(t *testing.T) {
	var b bytes.Buffer
	if err := sample().SVG(&b); err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(&b)
	rects := 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "rect" {
			rects++
		}
	}
	if rects != 1+2+3+4 { // the ground, a panel for each path, reservations, the legend
		t.Errorf("%d boxes", rects)
	}
}

// Boxes of one path do not lie on each other.
func TestStacked(t *testing.T) {
	p := Path{On: []reserve.Reservation{
		one("a", "10.0.0.0/8", 50, 0, 10*time.Hour, reserve.Active), one("b", "10.0.0.0/8", 20, 5*time.Hour, 15*time.Hour, reserve.Active),
		one("c", "10.0.0.0/8", 30, 11*time.Hour, 12*time.Hour, reserve.Active),
	}}
	got := p.stacked()
	if got[0] != 0 || got[1] != 50 || got[2] != 0 {
		t.Errorf("%v", got)
	}
}
