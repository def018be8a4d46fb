// SPDX-License-Identifier: Apache-2.0

package units

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// FormatSize writes bytes for people: "10.2 MiB", "812 B".
func FormatSize[T int64 | uint64 | uint32 | int](n T) string {
	return scale(float64(n), 1024, []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"})
}

// FormatRate writes bits per second for people: "9.4 Mbit/s".
func FormatRate(bitsPerSecond float64) string {
	return scale(bitsPerSecond, 1000, []string{"bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"})
}

// FormatDuration writes a time with as many digits as mean something: "50.3ms", "12.4s", "3h12m".
func FormatDuration(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + FormatDuration(-d)
	case d == 0:
		return "0s"
	case d < time.Millisecond:
		return strconv.FormatInt(d.Microseconds(), 10) + "µs"
	case d < time.Second:
		return trim(float64(d)/float64(time.Millisecond)) + "ms"
	case d < time.Minute:
		return trim(d.Seconds()) + "s"
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}

// FormatRatio writes how many times smaller the wire was than the raw bytes: "12.3x"; "-" when nothing was sent.
func FormatRatio(raw, wire uint64) string {
	if raw == 0 || wire == 0 {
		return "-"
	}
	r := float64(raw) / float64(wire)
	if r >= 100 {
		return fmt.Sprintf("%.0fx", r)
	}
	return fmt.Sprintf("%.3gx", r)
}

func scale(v, step float64, names []string) string {
	i := 0
	for v >= step && i < len(names)-1 {
		v /= step
		i++
	}
	if i == 0 {
		return fmt.Sprintf("%.0f %s", v, names[0])
	}
	return trim(v) + " " + names[i]
}

// trim keeps three significant digits at most and drops trailing zeros.
func trim(v float64) string {
	switch {
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0")
	}
	return strings.TrimRight(strings.TrimRight(strconv.FormatFloat(v, 'f', 2, 64), "0"), ".")
}
