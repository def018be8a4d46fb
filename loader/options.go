// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"

	"github.com/trunkline/trunkline/cc"
	"github.com/trunkline/trunkline/loader/ledger"
	"github.com/trunkline/trunkline/loader/policy"
)

// Defaults of Options.
const (
	DefaultBPFFS   = "/sys/fs/bpf"
	DefaultDSCP    = 10 // AF11
	DefaultMarkBit = 0x10000000
)

// Options says what to load and where.
type Options struct {
	Instance   string           // names pins and state; "" is "default"
	Cgroup     string           // below the cgroup2 mount; "/" is the root
	BPFFS      string           // where bpffs is mounted; "" is DefaultBPFFS
	Interfaces []string         // for marks; nil: those with a route to a rule's prefix
	DSCP       uint8            // code point of marked packets, 0 to 63; 0 is DefaultDSCP
	MarkBit    uint32           // the bit of skb->mark that carries the decision; 0 is DefaultMarkBit
	Ledger     *ledger.Ledger   // every lasting change is written there first
	Log        *slog.Logger     // nil: silent
	Rules      []policy.Rule    // in force from the start
	PeerAddrs  []netip.AddrPort // peers' listeners, never steered
	Candidates []string         // congestion controls that may be chosen: ours are registered while a rule has Auto

	lockDir string  // tests: where agents agree on congestion controls; "" is cc.DefaultLockDir
	ccMode  cc.Mode // tests: as on a kernel without links of struct_ops

	forceClsact bool // tests: marks are written as on a kernel without tcx

	lossBytes uint32 // tests: room of tl_loss
}

// withDefaults fills in what is left out and refuses what cannot be meant.
func (o Options) withDefaults() (Options, error) {
	if o.Instance == "" {
		o.Instance = "default"
	}
	if strings.ContainsAny(o.Instance, "/.\x00") {
		return o, fmt.Errorf("instance %q: a name may hold neither / nor a dot", o.Instance)
	}
	if o.Cgroup == "" {
		o.Cgroup = "/"
	}
	if o.BPFFS == "" {
		o.BPFFS = DefaultBPFFS
	}
	if o.DSCP == 0 {
		o.DSCP = DefaultDSCP
	}
	if o.DSCP > 63 {
		return o, fmt.Errorf("dscp %d: a code point is 0 to 63", o.DSCP)
	}
	if o.MarkBit == 0 {
		o.MarkBit = DefaultMarkBit
	}
	if o.lockDir == "" {
		o.lockDir = cc.DefaultLockDir
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// Feature is one thing that the kernel side does, or does not do here.
type Feature struct {
	Name   string `json:"name"`
	On     bool   `json:"on"`
	Detail string `json:"detail"`           // what is on, or why it is not
	Remedy string `json:"remedy,omitempty"` // what the person can do about it
}

// Engine says where the engine listens.
type Engine struct {
	Port4    uint16 // on 127.0.0.1; 0: nowhere
	Port6    uint16 // on ::1; 0: nowhere
	PeerPort uint16 // where peers connect; 0: nowhere
}

// Original is where a steered connection wanted to go.
type Original struct {
	Destination netip.AddrPort
	Source      netip.AddrPort // what getsockname shows the application; the address is invalid where it is not known
	RuleID      uint32
}
