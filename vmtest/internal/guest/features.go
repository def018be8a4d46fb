// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/vmtest/internal/matrix"
)

// The agent whose features are asked for runs as on a production server: on the root cgroup, in the initial network
// namespace, with a rule for each feature.
const agentConfig = `instance: features
state_dir: %[1]s/state
run_dir: %[1]s/run
key: %[1]s/key
rules:
  - {name: every, remote: 192.0.2.0/24, congestion: reno, window: 8MiB, priority: retransmit}
`

const (
	agentStart = 20 * time.Second // without emulation
	rmemMax    = "/proc/sys/net/core/rmem_max"
)

// Features starts an agent on the whole host, takes its word for the features of the product, and asks the kernel for its
// own. Only in a guest: it attaches to the root cgroup.
func Features(ctx context.Context, trunkline string) ([]matrix.Feature, error) {
	wan, err := route()
	if err != nil {
		return nil, err
	}
	defer netlink.LinkDel(wan) // tests rely on its addresses being nobody's
	before, _ := os.ReadFile(rmemMax)
	product, err := agentFeatures(ctx, trunkline)
	if err != nil {
		return nil, err
	}
	if after, _ := os.ReadFile(rmemMax); !bytes.Equal(before, after) {
		return nil, fmt.Errorf("the agent left %s at %s, it was %s", rmemMax, bytes.TrimSpace(after), bytes.TrimSpace(before))
	}
	if left, err := exec.CommandContext(ctx, "bpftool", "prog", "show").Output(); err != nil || bytes.Contains(left, []byte("name tl_")) {
		return nil, fmt.Errorf("the agent is gone and has left programs (%w):\n%s", err, left)
	}
	return append(product, kernelFeatures()...), nil
}

// route gives the rule's prefix an interface, for marks to be written on.
func route() (netlink.Link, error) {
	wan := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "wan"}}
	if err := netlink.LinkAdd(wan); err != nil {
		return nil, fmt.Errorf("adding an interface: %w", err)
	}
	if err := netlink.LinkSetUp(wan); err != nil {
		return nil, fmt.Errorf("setting an interface up: %w", err)
	}
	addr, err := netlink.ParseAddr("192.0.2.1/24")
	if err != nil {
		return nil, err
	}
	if err := netlink.AddrAdd(wan, addr); err != nil {
		return nil, fmt.Errorf("giving an interface its address: %w", err)
	}
	return wan, nil
}

func agentFeatures(ctx context.Context, trunkline string) (features []matrix.Feature, err error) {
	dir, err := os.MkdirTemp("", "features-")
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "trunkline.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, agentConfig, dir), 0o600); err != nil {
		return nil, err
	}
	var log bytes.Buffer
	agent := exec.CommandContext(ctx, trunkline, "agent", "--config", config)
	agent.Stdout, agent.Stderr = &log, &log
	if err := agent.Start(); err != nil {
		return nil, fmt.Errorf("starting an agent: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- agent.Wait() }()
	features, err = askFeatures(ctx, trunkline, config, ended)
	if err != nil {
		_ = agent.Process.Kill()
		return nil, fmt.Errorf("%w; the agent said:\n%s", err, log.String())
	}
	if err := agent.Process.Signal(os.Interrupt); err != nil {
		return nil, fmt.Errorf("ending the agent: %w", err)
	}
	if err := <-ended; err != nil {
		return nil, fmt.Errorf("the agent ended badly: %w; it said:\n%s", err, log.String())
	}
	return features, nil
}

func askFeatures(ctx context.Context, trunkline, config string, ended <-chan error) ([]matrix.Feature, error) {
	var last error
	for end := time.Now().Add(testkit.Wait(agentStart)); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		out, err := exec.CommandContext(ctx, trunkline, "status", "--json", "--config", config).Output()
		if err == nil {
			var status struct {
				Features []matrix.Feature `json:"features"`
			}
			if err := json.Unmarshal(out, &status); err != nil {
				return nil, fmt.Errorf("reading the agent's status: %w", err)
			}
			return status.Features, nil
		}
		last = err
		select {
		case err := <-ended:
			return nil, fmt.Errorf("the agent ended: %w", errors.Join(err, last))
		default:
		}
	}
	return nil, fmt.Errorf("the agent did not answer: %w", last)
}
