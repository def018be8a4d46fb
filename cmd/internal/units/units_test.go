// SPDX-License-Identifier: Apache-2.0

package units

import (
	"strings"
	"testing"
	"time"
)

func TestSize(t *testing.T) {
	for _, c := range []struct {
		in   string
		want int64
		err  string
	}{
		{"65536", 65536, ""}, {"0", 0, ""}, {"64MiB", 64 << 20, ""}, {"1MB", 1_000_000, ""}, {"1.5GiB", 3 << 29, ""},
		{"2kB", 2000, ""}, {"7TiB", 7 << 40, ""},
		{"", 0, "number"}, {"MiB", 0, "number"}, {"12Mb", 0, "unknown unit"}, {"-1MiB", 0, "number"}, {"1 MiB", 0, "unknown unit"},
		{"9000000TiB", 0, "too large"}, {"9223372036854775807", 0, "too large"}, {"1.2.3MB", 0, "number"}, {"1e3", 0, "unknown unit"},
	} {
		got, err := Size(c.in)
		check(t, c.in, got, c.want, err, c.err)
	}
}

func TestRate(t *testing.T) {
	for _, c := range []struct {
		in   string
		want uint64
		err  string
	}{
		{"10Mbit", 10_000_000, ""}, {"1.5Gbit/s", 1_500_000_000, ""}, {"64kbit", 64_000, ""}, {"100bit", 100, ""},
		{"10", 0, "no unit"}, {"10MB", 0, "unknown unit"}, {"99999999Tbit", 0, "too large"}, {"fast", 0, "number"},
	} {
		got, err := Rate(c.in)
		check(t, c.in, got, c.want, err, c.err)
	}
}

func TestPercent(t *testing.T) {
	for _, c := range []struct {
		in   string
		want float64
		err  string
	}{
		{"0", 0, ""}, {"2%", 0.02, ""}, {"0.25", 0.25, ""}, {"100%", 1, ""},
		{"101%", 0, "between"}, {"-1%", 0, "between"}, {"x", 0, "between"}, {"NaN", 0, "between"},
	} {
		got, err := Percent(c.in)
		check(t, c.in, got, c.want, err, c.err)
	}
}

func TestDuration(t *testing.T) {
	for _, c := range []struct {
		in   string
		want time.Duration
		err  string
	}{
		{"135ms", 135 * time.Millisecond, ""}, {"0", 0, ""}, {"1h", time.Hour, ""}, {"30", 0, "not a time"}, {"-1s", 0, "not a time"},
	} {
		got, err := Duration(c.in)
		check(t, c.in, got, c.want, err, c.err)
	}
}

func check[T comparable](t *testing.T, in string, got, want T, err error, wantErr string) {
	t.Helper()
	switch {
	case wantErr == "" && err != nil:
		t.Errorf("%q: %v", in, err)
	case wantErr != "" && (err == nil || !strings.Contains(err.Error(), wantErr)):
		t.Errorf("%q: error %v, want one with %q", in, err, wantErr)
	case wantErr == "" && got != want:
		t.Errorf("%q: %v, want %v", in, got, want)
	}
}

func TestFormat(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{FormatSize(0), "0 B"}, {FormatSize(1023), "1023 B"}, {FormatSize(64 << 20), "64 MiB"}, {FormatSize(uint64(10_700_000)), "10.2 MiB"},
		{FormatRate(9.43e6), "9.43 Mbit/s"}, {FormatRate(1e9), "1 Gbit/s"},
		{FormatDuration(0), "0s"}, {FormatDuration(812 * time.Microsecond), "812µs"}, {FormatDuration(50340 * time.Microsecond), "50.3ms"},
		{FormatDuration(12400 * time.Millisecond), "12.4s"}, {FormatDuration(3*time.Hour + 12*time.Minute), "3h12m"},
		{FormatDuration(75 * time.Second), "1m15s"}, {FormatDuration(50 * time.Hour), "2d02h"},
		{FormatRatio(0, 0), "-"}, {FormatRatio(1230, 100), "12.3x"}, {FormatRatio(100, 100), "1x"}, {FormatRatio(40000, 100), "400x"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}
