// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"
)

// The entries of the sockmap fast path's maps; splice_maps.h says what each field means.
type (
	SpliceKey   = skmsgTlSpliceKey
	SpliceID    = skmsgTlSpliceId
	SpliceCount = skmsgTlSpliceCount
)

// The states of a connection on the fast path, in Sock.
const (
	SpliceNever = uint8(0) // never entered
	SpliceOn    = uint8(1) // redirected while the budget lasts
	SpliceOver  = uint8(2) // plain TCP for good
)

// What one connection may have redirected, in bytes and in messages.
const (
	SpliceBytes = 256 << 10
	SpliceMsgs  = 1024
)

// Splice returns the sockmap fast path: the verdict, its own maps and tl_sock, none of them created yet.
func Splice() (*ebpf.CollectionSpec, error) {
	spec, err := loadSkmsg()
	if err != nil {
		return nil, err
	}
	needed := []string{skmsgMapTlApps, skmsgMapTlEngs, skmsgMapTlSpliced, skmsgMapTlSock}
	maps.DeleteFunc(spec.Maps, func(name string, _ *ebpf.MapSpec) bool { return !slices.Contains(needed, name) })
	return spec, nil
}

// SpliceKeyFrom returns the key under which the application's end of a steered connection goes: its address as the engine
// sees it, and the engine's port.
func SpliceKeyFrom(client netip.AddrPort, enginePort uint16) SpliceKey {
	k := SpliceKey{Port: client.Port(), EnginePort: enginePort}
	k.Addr.B = client.Addr().As16()
	return k
}
