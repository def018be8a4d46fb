// SPDX-License-Identifier: Apache-2.0

// Package reason is the one table of why a flow that a dedup rule matched is not optimised. The BPF programs, the
// engine, the command line, the metric labels and docs/reasons.md all take their names and numbers from here.
package reason

//go:generate go run ./gen

// Code numbers a reason. Numbers are part of the interface: they are never reused or renumbered.
type Code uint32

// The reasons. None means that the flow is optimised, or that nothing has been decided yet.
const (
	None            Code = 0
	EngineNotAlive  Code = 1
	PeerDown        Code = 2
	DialFailed      Code = 3
	OtherNetns      Code = 4
	BoundDevice     Code = 5
	Local           Code = 6
	OnLink          Code = 7
	PeerAddress     Code = 8
	OwnSocket       Code = 9
	MPTCP           Code = 10
	TableFull       Code = 11
	Excluded        Code = 12
	Draining        Code = 13
	FamilyOff       Code = 14
	Encrypted       Code = 15
	Incompressible  Code = 16
	SelfTestFailed  Code = 17
	NotAllowed      Code = 18
	LegFailed       Code = 19
	NoOriginal      Code = 20
	HistoryMismatch Code = 21
	Incompatible    Code = 22
)

// Info says what a reason means to the person who reads it.
type Info struct {
	Code     Code   `json:"code"`
	Name     string `json:"name"`     // the label in tables, JSON and metrics
	Intended bool   `json:"intended"` // true: working as configured; false: something wants attention
	Meaning  string `json:"meaning"`
	Action   string `json:"action"`
}

// Table holds every reason, ordered by code.
var Table = []Info{
	{EngineNotAlive, "engine-not-alive", false, "no listener of the engine was found, or its heartbeat is older than three seconds",
		"see that the agent runs (systemctl status trunkline) and is not starved of CPU"},
	{PeerDown, "peer-down", false, "the peer agent does not answer on its control connection",
		"see `trunkline peers`; check that the peer runs and that its port is reachable"},
	{DialFailed, "dial-failed", true, "the far agent could not reach this destination in the last 30 s",
		"none: the connection goes direct and shows the true error; see that the service listens"},
	{OtherNetns, "other-netns", true, "the socket is in another network namespace than the agent",
		"none: containers are not touched; run an agent in that namespace to optimise it"},
	{BoundDevice, "bound-device", true, "the socket is bound to a device (SO_BINDTODEVICE)",
		"none: such a socket cannot reach the engine on loopback"},
	{Local, "local", true, "the destination is an address of this host",
		"none: nothing to gain"},
	{OnLink, "on-link", true, "the destination is on a directly connected network",
		"none: nothing to gain"},
	{PeerAddress, "peer-address", true, "the destination is a peer agent's own address and port",
		"none: this is what keeps two agents from steering each other"},
	{OwnSocket, "own-socket", true, "the socket belongs to the agent itself",
		"none: this is what keeps the agent from steering itself"},
	{MPTCP, "mptcp", true, "the socket uses Multipath TCP",
		"none, or switch MPTCP off in the application to have it optimised"},
	{TableFull, "table-full", false, "more connections are being set up at once than the table holds",
		"see that the agent accepts connections in time (trunkline status)"},
	{Excluded, "excluded", true, "the rule excludes this user or cgroup",
		"none, or change exclude_users or exclude_cgroups of the rule"},
	{Draining, "draining", true, "the agent is draining: it steers no new connections",
		"restart or reload the agent when the maintenance is over"},
	{FamilyOff, "family-off", false, "the engine has no listener for this address family",
		"give the loopback interface its address (127.0.0.1 or ::1) and restart the agent"},
	{Encrypted, "encrypted", true, "the flow carries TLS or another encrypted protocol: nothing repeats and nothing compresses",
		"none: the bytes pass as they are; exclude the port to spare the detour"},
	{Incompressible, "incompressible", true, "the flow's bytes neither repeat nor compress",
		"none: the bytes pass as they are"},
	{SelfTestFailed, "self-test-failed", true, "this kernel's sockmap fails the self-test, so the splice is off; the flow is steered all the same",
		"none, or update the kernel; `splice: force` overrides where the applications are known"},
	{NotAllowed, "not-allowed", false, "the far agent's `allow` list does not contain the destination",
		"add the destination to `allow` of the peer at the far end"},
	{LegFailed, "leg-failed", false, "the connection to the peer broke while it carried the flow",
		"see the log of both agents for the cause"},
	{NoOriginal, "no-original", true, "a connection came to the engine's listener without having been steered",
		"find out who connects to the engine's loopback port directly"},
	{HistoryMismatch, "history-mismatch", false, "the peer's history did not hold what was referred to, and a raw copy could not mend it",
		"report it: the flow was reset and the history begun anew"},
	{Incompatible, "incompatible", false, "the peer speaks another version of the protocol",
		"install the same version of trunkline at both ends"},
}

// Lookup returns the table's entry for a code; ok is false where there is none.
func Lookup(c Code) (Info, bool) {
	for _, i := range Table {
		if i.Code == c {
			return i, true
		}
	}
	return Info{}, false
}

// String returns the reason's label, "-" for None.
func (c Code) String() string {
	if c == None {
		return "-"
	}
	if i, ok := Lookup(c); ok {
		return i.Name
	}
	return "unknown"
}
