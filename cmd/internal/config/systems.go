// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"net/url"
	"slices"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// System is a provisioning system of somebody else's that reservations come from: a directory or a URL.
type System struct {
	Name      string
	Directory string
	URL       string
	Token     string // path of a file; "": none
	Owner     string // whose its reservations are
	Every     time.Duration
}

// How often a system is asked.
const (
	DefaultDirectoryEvery = 5 * time.Second
	DefaultURLEvery       = 30 * time.Second
	minEvery              = time.Second
	maxEvery              = time.Hour
	maxSystems            = 16
)

func (d *decoder) system(n ast.Node, to *Reservations) {
	var s System
	before := len(d.problems)
	d.mapping(n, "a system", systemKeys, fields{
		"name":      func(n ast.Node) { d.reservedName(n, "system name", &s.Name) },
		"directory": func(n ast.Node) { d.path(n, "directory", &s.Directory) },
		"url":       func(n ast.Node) { d.systemURL(n, &s.URL) },
		"token":     func(n ast.Node) { d.path(n, "token", &s.Token) },
		"owner":     func(n ast.Node) { d.reservedName(n, "owner", &s.Owner) },
		"every":     func(n ast.Node) { d.duration(n, "every", minEvery, maxEvery, func(v time.Duration) { s.Every = v }) },
	})
	switch {
	case len(d.problems) > before:
	case s.Name == "":
		d.failf(n, "a system has no name; give it one, like {name: nrps, directory: /etc/trunkline/reservations.d, owner: noc}")
	case (s.Directory == "") == (s.URL == ""):
		d.failf(n, "system %q must have either a directory or a url", s.Name)
	case s.Token != "" && s.URL == "":
		d.failf(n, "system %q has a token and no url to send it to; remove it", s.Name)
	case s.Owner == "":
		d.failf(n, "system %q has no owner; say whose its reservations are: one of owners", s.Name)
	case slices.ContainsFunc(to.Systems, func(o System) bool { return o.Name == s.Name }):
		d.failf(n, "system %q is given twice; remove one", s.Name)
	case len(to.Systems) == maxSystems:
		d.failf(n, "system %q is one too many; the most is %d", s.Name, maxSystems)
	}
	if s.Every == 0 {
		s.Every = DefaultURLEvery
		if s.Directory != "" {
			s.Every = DefaultDirectoryEvery
		}
	}
	to.Systems = append(to.Systems, s)
	d.systems = append(d.systems, n)
}

// systemURL takes no secrets in the URL, which is shown, and warns where the token could be read on the way.
func (d *decoder) systemURL(n ast.Node, to *string) {
	d.text(n, "url", func(s string) {
		u, err := url.Parse(s)
		switch {
		case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
			d.failf(n, "url %q must be like https://nrps.example.net/api", s)
		case u.User != nil || u.RawQuery != "" || u.Fragment != "":
			d.failf(n, "url %q must have no user, query or fragment; a secret belongs into a file named by token", u.Redacted())
		case u.Scheme == "http" && !isLoopback(u.Hostname()):
			d.warnf(n, "url %q is not encrypted: whoever is on the way can reserve; use https", s)
		}
		*to = s
	})
}

func isLoopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

// checkSystems finds owners that are not declared.
func (d *decoder) checkSystems(c *Config) {
	names := make([]string, len(c.Reservations.Owners))
	for i, o := range c.Reservations.Owners {
		names[i] = o.Name
	}
	for i, s := range c.Reservations.Systems {
		switch {
		case slices.Contains(names, s.Owner):
		case len(names) == 0:
			d.failf(d.systems[i], "owner %q of system %q is not declared: there are no owners; add it to owners", s.Owner, s.Name)
		default:
			d.failf(d.systems[i], "owner %q of system %q is not declared; %s", s.Owner, s.Name, suggest(s.Owner, names))
		}
	}
}
