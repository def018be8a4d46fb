// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

func (d *decoder) peer(n ast.Node, c *Config) {
	p := Peer{Line: d.problem(n, "").Line}
	var choice codecChoice
	d.mapping(n, "a peer", peerKeys, d.codecFields(&choice, fields{
		"name": func(n ast.Node) {
			d.text(n, "name", func(s string) {
				if !plainName.MatchString(s) {
					d.failf(n, "peer name %q must be up to 64 letters, digits and . _ : / , -", s)
				}
				p.Name = s
			})
		},
		"address": func(n ast.Node) {
			d.text(n, "address", func(s string) {
				if !hostPort(s) {
					d.failf(n, "address %q must be a host and a port, like \"203.0.113.9:4820\" or \"[2001:db8::9]:4820\"", s)
				}
				p.Address = s
			})
		},
		"key": func(n ast.Node) {
			d.text(n, "key", func(s string) {
				if !isFingerprint(s) {
					d.failf(n, "key %q is not a fingerprint; copy what `trunkline keygen` prints on the peer (ed25519: and 44 characters)", s)
				}
				p.Key = s
			})
		},
		"allow": func(n ast.Node) {
			d.list(n, "allow", func(n ast.Node) {
				d.text(n, "each of allow", func(s string) {
					a, err := ParseAllow(s)
					if err != nil {
						d.failf(n, "allow %q: %v", s, err)
						return
					}
					p.Allow = append(p.Allow, a)
				})
			})
		},
	}))
	if p.Name == "" && len(d.problems) == 0 {
		d.failf(n, "a peer has no name; give it one, like {name: busan, ...}")
	}
	if p.Key == "" && len(d.problems) == 0 {
		d.failf(n, "peer %q has no key; add what `trunkline keygen` prints on it", p.Name)
	}
	c.Peers = append(c.Peers, p)
	d.peers = append(d.peers, n)
	d.peerCodecs = append(d.peerCodecs, choice)
}

func isFingerprint(s string) bool {
	b64, ok := strings.CutPrefix(s, "ed25519:")
	key, err := base64.StdEncoding.DecodeString(b64)
	return ok && err == nil && len(key) == 32
}

// ParseAllow reads "PREFIX:PORTS": "10.2.0.0/16:80,5432", "192.0.2.7:8000-8010", "[2001:db8::/32]:443". IPv6 is in
// brackets, since its own colons would make the last group look like a port.
func ParseAllow(s string) (Allow, error) {
	var prefix, ports string
	if rest, bracketed := strings.CutPrefix(s, "["); bracketed {
		var ok bool
		if prefix, ports, ok = strings.Cut(rest, "]:"); !ok {
			return Allow{}, errors.New("no ports after the bracket; write it like [2001:db8::/32]:443")
		}
	} else {
		var ok bool
		if prefix, ports, ok = strings.Cut(s, ":"); !ok {
			return Allow{}, errors.New("no ports; write it like 10.2.0.0/16:80,5432 (all: :1-65535)")
		}
		if strings.Contains(ports, ":") {
			return Allow{}, errors.New("an IPv6 prefix stands in brackets; write it like [2001:db8::/32]:443")
		}
	}
	p, err := parsePrefix(prefix)
	if err != nil {
		return Allow{}, err
	}
	if a := p.Addr(); a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() {
		return Allow{}, errors.New("loopback, link-local and multicast addresses are never reachable through a peer; remove it")
	}
	ranges, err := parsePorts(ports)
	return Allow{Prefix: p, Ports: ranges}, err
}

// parsePrefix reads a prefix, or an address as the prefix of itself alone.
func parsePrefix(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" && !a.Is4In6() {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		return p, fmt.Errorf("%q is not a prefix; write it like 203.0.113.0/24 or 2001:db8::/32", s)
	case p.Addr().Is4In6():
		return p, fmt.Errorf("%q is an IPv4 prefix in IPv6 clothes; write it as IPv4", s)
	case p != p.Masked():
		return p, fmt.Errorf("%q has bits set behind its length; write %s", s, p.Masked())
	}
	return p, nil
}

func parsePorts(s string) ([]PortRange, error) {
	var ranges []PortRange
	for part := range strings.SplitSeq(s, ",") {
		r, err := parsePortRange(part)
		if err != nil {
			return nil, err
		}
		ranges = append(ranges, r)
	}
	return ranges, nil
}

func parsePortRange(s string) (PortRange, error) {
	first, last, isRange := strings.Cut(s, "-")
	if !isRange {
		last = first
	}
	a, errA := strconv.ParseUint(first, 10, 16)
	b, errB := strconv.ParseUint(last, 10, 16)
	if errA != nil || errB != nil || a == 0 || b < a {
		return PortRange{}, fmt.Errorf("port %q must be a number from 1 to 65535 or a range like 8000-8010", s)
	}
	return PortRange{uint16(a), uint16(b)}, nil
}
