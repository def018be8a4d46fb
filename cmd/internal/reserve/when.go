// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"fmt"
	"strings"
	"time"
)

// localForms are the ways to write a time without its zone.
var localForms = []string{"2006-01-02 15:04", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02T15:04:05"}

// ParseTime reads a point in time: RFC 3339 ("2026-12-01T14:00:00+09:00"), in the zone of loc ("2026-12-01 14:00"), "now", or
// counted from now ("+2h"). A local time that does not exist, or exists twice, because of daylight saving is an error.
func ParseTime(s string, now time.Time, loc *time.Location) (time.Time, error) {
	if s == "now" {
		return now.UTC(), nil
	}
	if ahead, ok := strings.CutPrefix(s, "+"); ok {
		d, err := ParseSpan(ahead)
		return now.Add(d).UTC(), err
	}
	if t, err := time.Parse(time.RFC3339, strings.ToUpper(s)); err == nil {
		return t.UTC(), nil
	}
	for _, form := range localForms {
		if t, err := time.ParseInLocation(form, s, loc); err == nil {
			return local(t, s, form)
		}
	}
	return time.Time{}, fmt.Errorf("%q is not a time; write it like 2026-12-01T14:00:00Z, \"2026-12-01 14:00\" (local), now, or +2h", s)
}

// local refuses what daylight saving makes of a local time that clocks skip, or show twice.
func local(t time.Time, s, form string) (time.Time, error) {
	if t.Format(form) != s {
		return t, fmt.Errorf("%q does not exist in %s: clocks skip it; write it with its zone, like %s", s, t.Location(), t.Format(time.RFC3339))
	}
	for _, d := range []time.Duration{-time.Hour, time.Hour, -30 * time.Minute, 30 * time.Minute} {
		if other := t.Add(d); other.Format(form) == s {
			return t, fmt.Errorf("%q comes twice in %s, as clocks are set back; write it with its zone: %s or %s", s, t.Location(),
				t.Format(time.RFC3339), other.Format(time.RFC3339))
		}
	}
	return t.UTC(), nil
}

// ParseSpan reads how long: "2h", "90m", also in days, "3d".
func ParseSpan(s string) (time.Duration, error) {
	text := s
	if days, ok := strings.CutSuffix(s, "d"); ok {
		text = days + "h"
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 || d > maxAhead {
		return 0, fmt.Errorf("%q is not a span of time; write it like 2h, 90m or 3d", s)
	}
	if text != s {
		if d > maxAhead/24 {
			return 0, fmt.Errorf("%q is longer than five years", s)
		}
		d *= 24
	}
	return d, nil
}
