// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/bpf"
)

// A family's hooks in the order of attachment: none may be steered before the other two can disguise it.
type steeringHooks struct {
	feature string
	suffix  string
	what    string
	attach  []ebpf.AttachType // getpeername, getsockname, connect
}

// attachSteering attaches the connect hooks. They go with the process, so that a killed agent refuses nobody.
func (l *Loader) attachSteering(context.Context) {
	for _, h := range []steeringHooks{
		{"steering-ipv4", "4", "connections of IPv4 sockets", []ebpf.AttachType{
			ebpf.AttachCgroupInet4GetPeername, ebpf.AttachCgroupInet4GetSockname, ebpf.AttachCGroupInet4Connect}},
		{"steering-ipv6", "6", "connections of IPv6 sockets, to IPv6 and to IPv4", []ebpf.AttachType{
			ebpf.AttachCgroupInet6GetPeername, ebpf.AttachCgroupInet6GetSockname, ebpf.AttachCGroupInet6Connect}},
	} {
		l.attachFamily(h)
	}
}

func (l *Loader) attachFamily(h steeringHooks) {
	// Without sockops the engine could not tell where a connection wanted to go, and would reset each.
	if !l.has("rules") {
		l.feature(Feature{Name: h.feature, Detail: "it needs the feature rules, which is off", Remedy: "see there"})
		return
	}
	if h.suffix == "6" && !haveIPv6() {
		l.feature(Feature{Name: h.feature, Detail: "this kernel has no IPv6, so there is nothing to steer; IPv4 is not affected",
			Remedy: "none needed without IPv6; to have it, boot without ipv6.disable=1 a kernel with CONFIG_IPV6, and restart the agent"})
		return
	}
	err := l.attempt(func() error { return l.attachHooks(h) })
	if err != nil {
		detail, remedy := whyNot(err, minKernel)
		l.log.Warn("no steering", "feature", h.feature, "why", detail, "remedy", remedy)
		l.feature(Feature{Name: h.feature, Detail: detail, Remedy: remedy})
		return
	}
	l.feature(Feature{Name: h.feature, On: true, Detail: l.steeringDetail(h.what)})
}

func (l *Loader) attachHooks(h steeringHooks) error {
	coll, err := l.loadObject(func() (*ebpf.CollectionSpec, error) {
		spec, err := bpf.Connect(haveMPTCP())
		if err != nil {
			return nil, err
		}
		for name := range spec.Programs {
			if !strings.HasSuffix(name, h.suffix) {
				delete(spec.Programs, name)
			}
		}
		return spec, nil
	})
	if err != nil {
		return err
	}
	for i, program := range []string{"tl_getpeername", "tl_getsockname", "tl_connect"} {
		if err := l.attachCgroup(coll, program+h.suffix, h.attach[i]); err != nil {
			return err
		}
	}
	return nil
}

// haveMPTCP says whether there can be MPTCP sockets. Where they are only switched off, which may change, the kernel's answer
// is another.
func haveMPTCP() bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_MPTCP)
	if err == nil {
		_ = unix.Close(fd)
	}
	return !errors.Is(err, unix.EPROTONOSUPPORT)
}

// haveIPv6 says whether there can be IPv6 sockets. Where IPv6 is switched off only by sysctl there can: they connect to IPv4.
func haveIPv6() bool {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return !errors.Is(err, unix.EAFNOSUPPORT)
}

// has says whether a feature is on.
func (l *Loader) has(name string) bool {
	return slices.ContainsFunc(l.Features(), func(f Feature) bool { return f.Name == name && f.On })
}
