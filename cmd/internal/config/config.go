// SPDX-License-Identifier: Apache-2.0

// Package config reads the agent's configuration: strictly, so that a misspelt key is an error with its place in the
// file and not a silent default.
package config

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/trunkline/trunkline/cc/choice"
	"github.com/trunkline/trunkline/cmd/internal/reserve"
	"github.com/trunkline/trunkline/loader/policy"
	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// DefaultPath is where the agent looks for its configuration.
const DefaultPath = "/etc/trunkline/trunkline.yaml"

// DefaultStateRoot and DefaultRunRoot hold one directory per instance.
const (
	DefaultStateRoot = "/var/lib/trunkline"
	DefaultRunRoot   = "/run/trunkline"
)

// maxFileBytes bounds what is read: a configuration of this size is a mistake.
const maxFileBytes = 1 << 20

// Config is a valid configuration with every default filled in.
type Config struct {
	Path         string
	Instance     string
	Cgroup       string         // below the cgroup2 mount
	Interfaces   []string       // nil: found by route
	Listen       netip.AddrPort // where peers connect; not valid: nowhere
	StateDir     string
	RunDir       string
	Key          string // path of the private key
	BPFFS        string
	Group        string // may read through the control socket; "": root alone
	DSCP         uint8
	MarkBit      uint32
	History      History
	Auto         Auto
	Reservations Reservations
	Peers        []Peer
	Rules        []Rule
	Warnings     Problems
}

// History says where histories are kept, and how much they take.
type History struct {
	MemoryBytes int64  // of all together; with DiskBytes, of what is mapped in
	DiskBytes   int64  // of all files together; 0: in memory
	Directory   string // of the files; "": none
}

// Auto says how a congestion control is chosen for the paths of rules that leave the choice to the agent.
type Auto struct {
	Candidates []string
	DryRun     bool // choices are reported, and not put in force
	Explore    bool // what was not tried on a path may be tried there
	Hold       time.Duration
}

// Bounds and default of Auto.Hold: how long a choice stays at least.
const (
	DefaultHold = 10 * time.Second
	minHold     = time.Second
	maxHold     = time.Hour
)

// Peer is another agent.
type Peer struct {
	Name    string
	Line    int
	Address string // host:port; "": only it connects to us
	Key     string // fingerprint, "ed25519:BASE64"
	Allow   []Allow
	Codec   codec.Spec // of its rules that say nothing else
}

// Allow is a set of destinations that the peer may reach through this host.
type Allow struct {
	Prefix netip.Prefix
	Ports  []PortRange
}

// PortRange is inclusive at both ends.
type PortRange struct{ First, Last uint16 }

// Rule says what flows to or from a prefix get.
type Rule struct {
	ID             uint32 // from 1, the place in the file
	Name           string
	Line           int
	Remote         netip.Prefix
	Ports          []uint16 // nil: every port
	Congestion     string   // "": the kernel's default, or what Auto chooses
	Auto           bool     // the congestion control is chosen for each path
	Window         policy.WindowMode
	WindowBytes    uint32 // with policy.WindowFixed
	Weight         uint8  // on a reserved path, 1 to policy.MaxWeight
	PacingBitps    uint64 // bits per second; 0: no cap
	Priority       string // PriorityOff, PriorityRetransmit, PrioritySlowStart
	Peer           string // "": not steered
	History        string // name of the group; HistoryNone: no history
	Codec          codec.Spec
	Splice         string // SpliceAuto, SpliceOff, SpliceForce
	ExcludeCgroups []string
	ExcludeUsers   []string // names or numbers
}

// The words a rule may use.
const (
	PriorityOff        = "off"
	PriorityRetransmit = "retransmit"
	PrioritySlowStart  = "retransmit+slow-start"
	SpliceAuto         = "auto"
	SpliceOff          = "off"
	SpliceForce        = "force"
	HistoryNone        = "none"
)

// Socket is the control socket's path.
func (c *Config) Socket() string { return filepath.Join(c.RunDir, "control.sock") }

// Ledger is the path of the ledger.
func (c *Config) Ledger() string { return filepath.Join(c.StateDir, "ledger.db") }

// PathDB is the path of the database that keeps what was chosen for paths.
func (c *Config) PathDB() string { return filepath.Join(c.StateDir, "paths.db") }

// ReservationDB is the path of the database that keeps reservations.
func (c *Config) ReservationDB() string { return filepath.Join(c.StateDir, "reservations.db") }

// ChoosesCongestion says whether any rule leaves the choice of its congestion control to the agent.
func (c *Config) ChoosesCongestion() bool {
	return slices.ContainsFunc(c.Rules, func(r Rule) bool { return r.Auto })
}

// Load reads and validates the file at path. An invalid file gives Problems, all that were found.
func Load(path string) (*Config, error) {
	data, err := read(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

// missingError says that there is no file; it is fs.ErrNotExist to errors.Is.
type missingError struct{ path string }

func (e *missingError) Error() string {
	return fmt.Sprintf("no configuration at %s; write one (see packaging/trunkline.yaml) or name it with --config", e.path)
}

func (e *missingError) Unwrap() error { return os.ErrNotExist }

func read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case os.IsNotExist(err):
		return nil, &missingError{path}
	case err != nil:
		return nil, fmt.Errorf("reading the configuration: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("the configuration %s is not a regular file; name the file itself", path)
	case info.Size() > maxFileBytes:
		return nil, fmt.Errorf("the configuration %s has %d bytes; the most is %d", path, info.Size(), maxFileBytes)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	return data, nil
}

// Parse validates a configuration; path is used in messages only.
func Parse(path string, data []byte) (*Config, error) {
	d := &decoder{file: path}
	c := &Config{
		Path: path, Instance: "default", Cgroup: "/", BPFFS: "/sys/fs/bpf",
		DSCP: 10, MarkBit: 0x10000000, History: History{MemoryBytes: 256 << 20},
		Auto:         Auto{Candidates: slices.Clone(choice.DefaultCandidates), Hold: DefaultHold},
		Reservations: Reservations{Policy: reserve.Policy{ProbePort: DefaultProbePort}},
	}
	d.document(data, c)
	if len(d.problems) == 0 {
		c.defaults()
		d.crossCheck(c)
	}
	if len(d.problems) > 0 {
		return nil, d.problems.sorted()
	}
	c.Warnings = d.warnings
	return c, nil
}

func (c *Config) defaults() {
	if c.StateDir == "" {
		c.StateDir = filepath.Join(DefaultStateRoot, c.Instance)
	}
	if c.RunDir == "" {
		c.RunDir = filepath.Join(DefaultRunRoot, c.Instance)
	}
	if c.History.DiskBytes > 0 && c.History.Directory == "" {
		c.History.Directory = filepath.Join(c.StateDir, "history")
	}
	if c.Key == "" {
		c.Key = filepath.Join(c.StateDir, "key")
	}
}

// Locate reads only where an instance keeps its things, from a file that may be wrong elsewhere; an error if it cannot be
// read at all.
func Locate(path string) (*Config, error) {
	data, err := read(path)
	if err != nil {
		return nil, err
	}
	c := &Config{Path: path, Instance: "default"}
	(&decoder{file: path}).document(data, c)
	c.defaults()
	return c, nil
}
