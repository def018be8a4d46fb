// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"strings"
	"testing"
	"time"
)

func TestParseTime(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip("this machine has no time zones: ", err)
	}
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct{ in, want, err string }{
		{"now", "2026-12-01T12:00:00Z", ""},
		{"+2h", "2026-12-01T14:00:00Z", ""},
		{"+3d", "2026-12-04T12:00:00Z", ""},
		{"2026-12-01T14:00:00+09:00", "2026-12-01T05:00:00Z", ""},
		{"2026-12-01 14:00", "2026-12-01T13:00:00Z", ""},
		{"2026-07-01 14:00:30", "2026-07-01T12:00:30Z", ""},
		{"2026-03-29 02:30", "", "does not exist in Europe/Berlin: clocks skip it; write it with its zone"},
		{"2026-10-25 02:30", "", "comes twice in Europe/Berlin"},
		{"2026-10-25T02:30:00+01:00", "2026-10-25T01:30:00Z", ""},
		{"tomorrow", "", "is not a time; write it like"}, {"", "", "is not a time"}, {"+", "", "not a span"}, {"-2h", "", "is not a time"},
		{"+99999d", "", "not a span"},
	} {
		got, err := ParseTime(c.in, now, berlin)
		switch {
		case c.err == "" && (err != nil || got.Format(time.RFC3339) != c.want || got.Location() != time.UTC):
			t.Errorf("%q: %s, %v; want %s", c.in, got, err, c.want)
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%q: %v, want an error with %q", c.in, err, c.err)
		}
	}
}

func TestParseSpan(t *testing.T) {
	for in, want := range map[string]time.Duration{"2h": 2 * time.Hour, "90m": 90 * time.Minute, "1.5d": 36 * time.Hour, "0": 0, "-1h": 0, "2": 0, "d": 0} {
		if got, err := ParseSpan(in); got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %s, %v; want %s", in, got, err, want)
		}
	}
}
