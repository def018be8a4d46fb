// SPDX-License-Identifier: Apache-2.0

package bpf

import "github.com/cilium/ebpf"

// Layout returns the maps alone, none of them created yet.
func Layout() (*ebpf.CollectionSpec, error) { return loadLayout() }

// Connect returns the programs that steer: connect, getpeername and getsockname, for both families; without mptcp, for
// kernels that are built without MPTCP and refuse a program that asks for it.
func Connect(mptcp bool) (*ebpf.CollectionSpec, error) {
	if mptcp {
		return loadConnect()
	}
	return loadConnectNoMPTCP()
}

// Sockops returns the program of rules, telemetry, steering and the sockmap fast path; without splice, for kernels that
// refuse the fast path's maps.
func Sockops(splice bool) (*ebpf.CollectionSpec, error) {
	if splice {
		return loadSockops()
	}
	return loadSockopsPlain()
}

// Mark returns the program that decides which packets are marked.
func Mark() (*ebpf.CollectionSpec, error) { return loadMark() }

// DSCP returns the program that writes the code point on marked packets.
func DSCP() (*ebpf.CollectionSpec, error) { return loadDscp() }

// Gate returns the program that a filter of clsact runs: it calls DSCP's through the map tl_gate while the agent lives.
func Gate() (*ebpf.CollectionSpec, error) { return loadGate() }

// Release returns the iterator that takes what reservations gave from quiet sockets.
func Release() (*ebpf.CollectionSpec, error) { return loadRelease() }

// What Release's iterator takes it from.
const (
	ReleaseEnded   = uint32(0) // flows whose reservation is over
	ReleaseAll     = uint32(1) // all flows of the instance, for good
	ReleaseOrphans = uint32(2) // sockets that no instance knows, with rates of the instance's sign
)
