// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"strconv"
	"strings"
)

// stanza is what the fetcher needs of a package's entry in an index.
type stanza struct {
	Package, Version string
	Depends          []string // names alone, of the first of each row of alternatives
	SizeBytes        int64    // of the .deb
}

// parseStanzas reads entries as `apt-cache show` and Packages files have them.
func parseStanzas(text string) []stanza {
	var all []stanza
	for _, block := range strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n\n") {
		var s stanza
		for _, line := range strings.Split(block, "\n") {
			key, value, found := strings.Cut(line, ":")
			if !found || strings.HasPrefix(line, " ") {
				continue
			}
			value = strings.TrimSpace(value)
			switch key {
			case "Package":
				s.Package = value
			case "Version":
				s.Version = value
			case "Depends", "Pre-Depends":
				s.Depends = append(s.Depends, dependencies(value)...)
			case "Size":
				s.SizeBytes, _ = strconv.ParseInt(value, 10, 64) // only told as progress
			}
		}
		if s.Package != "" {
			all = append(all, s)
		}
	}
	return all
}

// dependencies returns the names in a field like "kmod, dracut | initramfs-tools (>= 0.120)".
func dependencies(field string) []string {
	var names []string
	for _, row := range strings.Split(field, ",") {
		first, _, _ := strings.Cut(row, "|")
		name, _, _ := strings.Cut(strings.TrimSpace(first), " ")
		name, _, _ = strings.Cut(name, ":")
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

// compareVersions orders Debian versions: negative if a is older than b. It follows Debian Policy 5.6.12.
func compareVersions(a, b string) int {
	epochA, restA := epoch(a)
	epochB, restB := epoch(b)
	if epochA != epochB {
		return epochA - epochB
	}
	upstreamA, revisionA := revision(restA)
	upstreamB, revisionB := revision(restB)
	if c := comparePart(upstreamA, upstreamB); c != 0 {
		return c
	}
	return comparePart(revisionA, revisionB)
}

func epoch(v string) (int, string) {
	if e, rest, found := strings.Cut(v, ":"); found {
		n, err := strconv.Atoi(e)
		if err == nil {
			return n, rest
		}
	}
	return 0, v
}

func revision(v string) (string, string) {
	if i := strings.LastIndexByte(v, '-'); i >= 0 {
		return v[:i], v[i+1:]
	}
	return v, ""
}

// comparePart compares runs of non-digits by order and runs of digits by value, in turns.
func comparePart(a, b string) int {
	for a != "" || b != "" {
		for (a != "" && !isDigit(a[0])) || (b != "" && !isDigit(b[0])) {
			if c := order(a) - order(b); c != 0 {
				return c
			}
			a, b = a[min(1, len(a)):], b[min(1, len(b)):]
		}
		var x, y string
		x, a = digits(a)
		y, b = digits(b)
		if len(x) != len(y) {
			return len(x) - len(y)
		}
		if c := strings.Compare(x, y); c != 0 {
			return c
		}
	}
	return 0
}

// order is that of the first character: a tilde before the end, the end and digits before letters, letters before the rest.
func order(s string) int {
	switch {
	case s == "" || isDigit(s[0]):
		return 0
	case s[0] == '~':
		return -1
	case s[0] >= 'A' && s[0] <= 'Z', s[0] >= 'a' && s[0] <= 'z':
		return int(s[0])
	default:
		return int(s[0]) + 256
	}
}

// digits splits the leading number off, without its leading zeros.
func digits(s string) (string, string) {
	i := 0
	for i < len(s) && isDigit(s[i]) {
		i++
	}
	return strings.TrimLeft(s[:i], "0"), s[i:]
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
