// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/trunkline/trunkline/cmd/internal/units"
)

var (
	topKeys = []string{"instance", "cgroup", "interfaces", "listen", "peers", "rules", "state_dir", "run_dir", "key",
		"bpffs", "group", "dscp", "mark_bit", "history", "auto", "reservations"}
	historyKeys      = []string{"memory", "disk", "directory"}
	reservationsKeys = []string{"owners", "paths", "systems", "probe_port", "band"}
	ownerKeys        = []string{"name", "role", "users", "groups", "rate", "count", "longest"}
	systemKeys       = []string{"name", "directory", "url", "token", "owner", "every"}
	pathKeys         = []string{"name", "remote", "capacity"}
	autoKeys         = []string{"candidates", "dry_run", "explore", "hold"}
	peerKeys         = []string{"name", "address", "key", "allow", "codec", "stage", "segment"}
	ruleKeys         = []string{"name", "remote", "ports", "congestion", "window", "weight", "pacing", "priority", "dedup", "splice",
		"exclude_cgroups", "exclude_users"}
	dedupKeys = []string{"peer", "history", "codec", "stage", "segment"}
)

var (
	instanceName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}$`)
	plainName    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/,-]{0,63}$`)
)

func (d *decoder) top(n ast.Node, c *Config) {
	d.mapping(n, "the configuration", topKeys, fields{
		"instance": func(n ast.Node) {
			d.text(n, "instance", func(s string) {
				if !instanceName.MatchString(s) {
					d.failf(n, "instance %q must be up to 32 lower-case letters, digits, - and _", s)
				}
				c.Instance = s
			})
		},
		"cgroup":     func(n ast.Node) { d.path(n, "cgroup", &c.Cgroup) },
		"interfaces": func(n ast.Node) { d.interfaces(n, c) },
		"listen":     func(n ast.Node) { d.listen(n, c) },
		"state_dir":  func(n ast.Node) { d.path(n, "state_dir", &c.StateDir) },
		"run_dir":    func(n ast.Node) { d.path(n, "run_dir", &c.RunDir) },
		"key":        func(n ast.Node) { d.path(n, "key", &c.Key) },
		"bpffs":      func(n ast.Node) { d.path(n, "bpffs", &c.BPFFS) },
		"group":      func(n ast.Node) { d.text(n, "group", func(s string) { c.Group = s }) },
		"dscp":       func(n ast.Node) { d.dscp(n, c) },
		"mark_bit": func(n ast.Node) {
			d.number(n, "mark_bit", 1, 1<<31, func(v uint64) {
				if v&(v-1) != 0 {
					d.failf(n, "mark_bit 0x%x has more than one bit set; give one, like 0x10000000", v)
				}
				c.MarkBit = uint32(v)
			})
		},
		"history": func(n ast.Node) {
			h := &c.History
			d.mapping(n, "history", historyKeys, fields{
				"memory":    func(n ast.Node) { d.size(n, "history memory", 8<<20, 1<<40, func(v int64) { h.MemoryBytes = v }) },
				"disk":      func(n ast.Node) { d.size(n, "history disk", 16<<20, 1<<50, func(v int64) { h.DiskBytes = v }) },
				"directory": func(n ast.Node) { d.path(n, "history directory", &h.Directory) },
			})
			if h.Directory != "" && h.DiskBytes == 0 {
				d.failf(n, "history has a directory, and no size on disk; add one, like disk: 10GiB")
			}
		},
		"auto":         func(n ast.Node) { d.auto(n, &c.Auto) },
		"reservations": func(n ast.Node) { d.reservations(n, &c.Reservations) },
		"peers":        func(n ast.Node) { d.list(n, "peers", func(n ast.Node) { d.peer(n, c) }) },
		"rules":        func(n ast.Node) { d.list(n, "rules", func(n ast.Node) { d.rule(n, c) }) },
	})
}

func (d *decoder) path(n ast.Node, what string, to *string) {
	d.text(n, what, func(s string) {
		if !strings.HasPrefix(s, "/") || s != filepath.Clean(s) {
			d.failf(n, "%s %q must be an absolute path without .. or a slash at the end", what, s)
		}
		*to = s
	})
}

func (d *decoder) size(n ast.Node, what string, low, high int64, use func(int64)) {
	d.text(n, what, func(s string) {
		v, err := units.Size(s)
		switch {
		case err != nil:
			d.failf(n, "%s: %v", what, err)
		case !units.HasUnit(s):
			d.failf(n, "%s %q has no unit; write it like 64MiB or 1MB", what, s)
		case v < low || v > high:
			d.failf(n, "%s %q must be from %s to %s", what, s, units.FormatSize(low), units.FormatSize(high))
		default:
			use(v)
		}
	})
}

func (d *decoder) interfaces(n ast.Node, c *Config) {
	if s, ok := scalar(n); ok {
		if s != "auto" {
			d.failf(n, "interfaces %q must be auto or a list, like [%s]", s, s)
		}
		return
	}
	d.texts(n, "interfaces", &c.Interfaces)
	for _, name := range c.Interfaces {
		if len(name) > 15 || strings.ContainsAny(name, "/ ") {
			d.failf(n, "interface %q is no interface name (up to 15 characters)", name)
		}
	}
}

func (d *decoder) listen(n ast.Node, c *Config) {
	d.text(n, "listen", func(s string) {
		a, err := netip.ParseAddrPort(s)
		if err != nil || a.Port() == 0 || a.Addr().Is4In6() {
			d.failf(n, "listen %q must be an address and a port, like \"[::]:4820\" or \"192.0.2.1:4820\"", s)
			return
		}
		c.Listen = a
	})
}

func (d *decoder) dscp(n ast.Node, c *Config) {
	d.text(n, "dscp", func(s string) {
		v, ok := codePoint(strings.ToLower(s))
		if !ok {
			d.failf(n, "dscp %q must be a number from 1 to 63 or a name: cs1 to cs7, af11 to af43, ef, va, le", s)
		}
		c.DSCP = v
	})
}

// codePoint knows the names of RFC 2474, 2597, 3246, 5865 and 8622.
func codePoint(s string) (uint8, bool) {
	if v, err := strconv.ParseUint(s, 0, 8); err == nil {
		return uint8(v), v > 0 && v < 64
	}
	switch s {
	case "ef":
		return 46, true
	case "va":
		return 44, true
	case "le":
		return 1, true
	}
	if len(s) == 3 && s[:2] == "cs" && s[2] >= '1' && s[2] <= '7' {
		return (s[2] - '0') << 3, true
	}
	if len(s) == 4 && s[:2] == "af" && s[2] >= '1' && s[2] <= '4' && s[3] >= '1' && s[3] <= '3' {
		return (s[2]-'0')<<3 | (s[3]-'0')<<1, true
	}
	return 0, false
}

// hostPort checks "host:port" without resolving the host.
func hostPort(s string) bool {
	host, port, err := net.SplitHostPort(s)
	if err != nil || host == "" {
		return false
	}
	v, err := strconv.ParseUint(port, 10, 16)
	return err == nil && v > 0
}
