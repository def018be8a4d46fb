// SPDX-License-Identifier: Apache-2.0

// Package units reads sizes, rates, times and percentages as people write them, and writes them as people read them.
package units

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

type unit struct {
	name   string
	factor float64
}

var sizeUnits = []unit{
	{"B", 1}, {"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
}

var rateUnits = []unit{
	{"bit", 1}, {"kbit", 1e3}, {"Kbit", 1e3}, {"Mbit", 1e6}, {"Gbit", 1e9}, {"Tbit", 1e12},
}

// HasUnit tells whether the text ends in a unit rather than a digit.
func HasUnit(s string) bool {
	number, suffix := split(s)
	return number != "" && suffix != ""
}

// Size reads a number of bytes: "64MiB", "1MB", "1.5GiB" or "65536".
func Size(s string) (int64, error) {
	v, err := parse(s, sizeUnits, 1)
	if err != nil {
		return 0, fmt.Errorf("size %q: %w; write it like 64MiB, 1MB or 65536", s, err)
	}
	return int64(v), nil
}

// Rate reads bits per second: "10Mbit", "1.5Gbit/s" or "64kbit".
func Rate(s string) (uint64, error) {
	v, err := parse(strings.TrimSuffix(s, "/s"), rateUnits, 0)
	if err != nil {
		return 0, fmt.Errorf("rate %q: %w; write it like 10Mbit or 1Gbit", s, err)
	}
	return uint64(v), nil
}

// Duration reads a time that is not negative: "135ms", "30s", "0".
func Duration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("time %q: not a time; write it like 135ms or 30s", s)
	}
	return d, nil
}

// Percent reads a share: "0.1%" is 0.001, and so is "0.001".
func Percent(s string) (float64, error) {
	number, isPercent := strings.CutSuffix(s, "%")
	v, err := strconv.ParseFloat(number, 64)
	if isPercent {
		v /= 100
	}
	if err != nil || !(v >= 0 && v <= 1) {
		return 0, fmt.Errorf("share %q: not between 0%% and 100%%; write it like 0.1%%", s)
	}
	return v, nil
}

func split(s string) (number, suffix string) {
	i := 0
	for i < len(s) && (s[i] == '.' || s[i] >= '0' && s[i] <= '9') {
		i++
	}
	return s[:i], s[i:]
}

// parse reads number and unit; bare is the factor of a number without a unit, 0 if it needs one.
func parse(s string, table []unit, bare float64) (float64, error) {
	number, suffix := split(s)
	v, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0, fmt.Errorf("it does not start with a number")
	}
	factor := bare
	if suffix != "" {
		factor = -1
		for _, u := range table {
			if u.name == suffix {
				factor = u.factor
			}
		}
	}
	switch {
	case factor < 0:
		return 0, fmt.Errorf("unknown unit %q", suffix)
	case factor == 0:
		return 0, fmt.Errorf("it has no unit")
	case v*factor >= math.MaxInt64:
		return 0, fmt.Errorf("it is too large")
	}
	return math.Round(v * factor), nil
}
