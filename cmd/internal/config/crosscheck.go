// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"strconv"
)

// crossCheck finds what is wrong between the parts, each being right in itself.
func (d *decoder) crossCheck(c *Config) {
	peers := map[string]Peer{}
	names := make([]string, 0, len(c.Peers))
	nameLine, keyLine := map[string]int{}, map[string]int{}
	for i, p := range c.Peers {
		if line := nameLine[p.Name]; line > 0 {
			d.failf(d.peers[i], "peer name %q is also that of the peer in line %d; rename one", p.Name, line)
		}
		if line := keyLine[p.Key]; line > 0 {
			d.failf(d.peers[i], "peer %q has the key of the peer in line %d; each host has its own", p.Name, line)
		}
		if p.Address == "" && !c.Listen.IsValid() {
			d.failf(d.peers[i], "peer %q has no address and this agent does not listen: they cannot meet; add address, or listen", p.Name)
		}
		peers[p.Name], nameLine[p.Name], keyLine[p.Key] = p, p.Line, p.Line
		names = append(names, p.Name)
	}
	d.checkRules(c, peers, names)
	d.settleCodecs(c)
	d.checkSystems(c)
	if d.autoAt != nil && !c.ChoosesCongestion() {
		d.warnf(d.autoAt, "auto is set and no rule has congestion: auto, so nothing is chosen; give one, or remove auto")
	}
	if len(c.Rules) == 0 && len(c.Peers) == 0 {
		d.warnf(nil, "no rules and no peers: nothing to do")
	}
	if c.Listen.IsValid() && len(c.Peers) == 0 {
		d.warnf(nil, "listen is set and no peer may connect; add peers, or remove listen")
	}
}

func (d *decoder) checkRules(c *Config, peers map[string]Peer, names []string) {
	type match struct {
		remote netip.Prefix
		port   uint16
	}
	taken := map[match]int{}
	nameLine := map[string]int{}
	for i, r := range c.Rules {
		peer, defined := peers[r.Peer]
		if defined && peer.Address == "" {
			d.warnf(d.rules[i].peer, "peer %q has no address, so rule %q cannot steer to it; add its address", r.Peer, r.Name)
		}
		if r.Peer != "" && !defined {
			if len(names) == 0 {
				d.failf(d.rules[i].peer, "peer %q is not defined: there are no peers; add it to peers", r.Peer)
			} else {
				d.failf(d.rules[i].peer, "peer %q is not defined; %s", r.Peer, suggest(r.Peer, names))
			}
		}
		if r.Peer == "" && (len(r.ExcludeCgroups) > 0 || len(r.ExcludeUsers) > 0 || r.Splice == SpliceForce) {
			d.warnf(d.rules[i].rule, "rule %q steers nothing (no dedup), so its splice and excludes do nothing", r.Name)
		}
		ports := r.Ports
		if ports == nil {
			ports = []uint16{0}
		}
		equal := false
		for _, p := range ports {
			m := match{r.Remote, p}
			if line := taken[m]; line > 0 {
				d.failf(d.rules[i].remote, "the rule equals the one in line %d: both are for %s %s; remove one or narrow it", line, r.Remote, portText(p))
				equal = true
				break
			}
			taken[m] = r.Line
		}
		if line := nameLine[r.Name]; line > 0 && !equal {
			d.failf(d.rules[i].rule, "rule name %q is also that of the rule in line %d; rename one", r.Name, line)
		}
		nameLine[r.Name] = r.Line
	}
}

func portText(p uint16) string {
	if p == 0 {
		return "without ports"
	}
	return "port " + strconv.Itoa(int(p))
}
