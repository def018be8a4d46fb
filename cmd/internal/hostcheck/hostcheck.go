// SPDX-License-Identifier: Apache-2.0

// Package hostcheck looks whether a host has what a configuration needs. It changes nothing: a check that mounts or sets
// something to see whether it works is how tools of this kind lose their users.
package hostcheck

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/user"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/cmd/internal/config"
	"github.com/trunkline/trunkline/cmd/internal/control"
	"github.com/trunkline/trunkline/loader"
	"github.com/trunkline/trunkline/proxy"
)

// Level says how bad a finding is.
type Level string

// The levels. Errors keep the agent from starting.
const (
	OK      Level = "ok"
	Warning Level = "warning"
	Error   Level = "error"
)

// Finding is one line of the report: what, and what to do.
type Finding struct {
	Level   Level  `json:"level"`
	Subject string `json:"subject"`
	Text    string `json:"text"`
}

type report struct{ findings []Finding }

func (r *report) add(l Level, subject, format string, args ...any) {
	r.findings = append(r.findings, Finding{l, subject, fmt.Sprintf(format, args...)})
}

// Host looks at this host; running is the agent of the same instance, nil if there is none.
func Host(ctx context.Context, c *config.Config, running *control.Status) []Finding {
	r := &report{}
	fit := preflight(r, c)
	kernel(r, c, running, fit)
	congestion(r, c)
	listen(r, c, running)
	files(r, c)
	names(ctx, r, c)
	return r.findings
}

// preflight tells whether the host lets anything be asked of it at all.
func preflight(r *report, c *config.Config) bool {
	errs := loader.Preflight(c.Cgroup)
	for _, err := range errs {
		r.add(Error, "host", "%v", err)
	}
	if len(errs) == 0 {
		r.add(OK, "host", "privileges and cgroup %s", c.Cgroup)
	}
	return len(errs) == 0
}

// bpffsMagic is what statfs says of bpffs.
const bpffsMagic = 0xcafe4a11

func kernel(r *report, c *config.Config, running *control.Status, fit bool) {
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		r.add(Warning, "btf", "the kernel carries no type information (/sys/kernel/btf/vmlinux); use one with CONFIG_DEBUG_INFO_BTF if a feature stays off")
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(c.BPFFS, &fs); err != nil || uint32(fs.Type) != bpffsMagic {
		r.add(Warning, "bpffs", "no bpffs at %s, so bpftool finds no pinned maps; to have them: mount -t bpf bpf %s", c.BPFFS, c.BPFFS)
	}
	if running != nil {
		for _, f := range running.Features {
			if !f.On && f.Name != "pins" {
				r.add(Warning, f.Name, "off in the running agent: %s; %s", f.Detail, f.Remedy)
			}
		}
		return
	}
	if fit {
		hooks(r)
		algorithms(r)
	}
	windows(r, c, "/proc/sys/net/core/rmem_max")
}

func listen(r *report, c *config.Config, running *control.Status) {
	if !c.Listen.IsValid() {
		return
	}
	l, err := net.Listen("tcp", c.Listen.String())
	switch {
	case err == nil:
		l.Close()
		r.add(OK, "listen", "%s is free", c.Listen)
	case running != nil && slices.Contains(running.Listen, c.Listen.String()):
		r.add(OK, "listen", "%s is held by the running agent, pid %d", c.Listen, running.PID)
	case errors.Is(err, unix.EADDRINUSE):
		r.add(Error, "listen", "%s is taken by another process (ss -ltnp 'sport = %d'); stop it or choose another port",
			c.Listen, c.Listen.Port())
	case errors.Is(err, unix.EADDRNOTAVAIL):
		r.add(Error, "listen", "%s is not an address of this host; use one that is, or [::]", c.Listen.Addr())
	default:
		r.add(Error, "listen", "%s cannot be used: %v", c.Listen, err)
	}
}

func files(r *report, c *config.Config) {
	info, err := os.Stat(c.Key)
	switch {
	case errors.Is(err, os.ErrNotExist):
		r.add(OK, "key", "%s is not there yet; the agent or trunkline keygen makes it", c.Key)
	case err != nil:
		r.add(Error, "key", "%v; run as root", err)
	case !info.Mode().IsRegular():
		r.add(Error, "key", "%s is not a regular file; name the key file itself, or leave `key` out", c.Key)
	default:
		if _, err := proxy.LoadOrCreateIdentity(c.Key); err != nil {
			r.add(Error, "key", "%v; correct it, or move it away and make a new one: trunkline keygen", err)
		} else {
			r.add(OK, "key", "%s", c.Key)
		}
	}
	if c.Group != "" {
		if _, err := strconv.Atoi(c.Group); err == nil {
			return
		}
		if _, err := user.LookupGroup(c.Group); err != nil {
			r.add(Error, "group", "%q does not exist; groupadd --system %s, or correct `group`", c.Group, c.Group)
		}
	}
}

// names looks up what rules and peers refer to by name.
func names(ctx context.Context, r *report, c *config.Config) {
	for _, name := range c.Interfaces {
		if _, err := net.InterfaceByName(name); err != nil {
			r.add(Warning, "interfaces", "%s is not there, so nothing is marked on it; correct `interfaces` (ip link)", name)
		}
	}
	for _, rule := range c.Rules {
		for _, u := range rule.ExcludeUsers {
			if _, err := strconv.ParseUint(u, 10, 32); err == nil {
				continue
			}
			if _, err := user.Lookup(u); err != nil {
				r.add(Error, "users", "line %d: user %q does not exist; correct exclude_users of rule %s", rule.Line, u, rule.Name)
			}
		}
	}
	for _, p := range c.Peers {
		host, _, err := net.SplitHostPort(p.Address)
		if err != nil {
			continue
		}
		if _, err := netip.ParseAddr(host); err == nil {
			continue
		}
		if _, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host); err != nil {
			r.add(Warning, "peers", "line %d: the address of peer %s cannot be resolved (%v); correct it or see /etc/resolv.conf", p.Line, p.Name, err)
		}
	}
}
