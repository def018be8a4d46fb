// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
)

// badFiles are wrong configurations; every message names the place, what is wrong and what to do.
var badFiles = []struct{ name, in, want string }{
	{"unknown top key", "instence: a", `t.yaml:1:1: unknown key "instence" in the configuration; did you mean "instance"?`},
	{"unknown rule key", "rules:\n  - remote: 192.0.2.0/24\n    priorty: off", `t.yaml:3:5: unknown key "priorty" in a rule; did you mean "priority"?`},
	{"unlike any key", "rules:\n  - {remote: 192.0.2.0/24, zzzzzz: 1}", `t.yaml:2:28: unknown key "zzzzzz" in a rule; known are name, remote`},
	{"unknown dedup key", "rules:\n  - {remote: 192.0.2.0/24, dedup: {per: busan}}", `unknown key "per" in dedup; did you mean "peer"?`},
	{"twice", "instance: a\ninstance: b", `t.yaml:2:1: `},
	{"no value", "instance:", `key "instance" has no value`},
	{"syntax", "rules: [", `t.yaml:1:8: not valid YAML: `},
	{"deep", "rules: " + strings.Repeat("[", 200000), `nested more than 100 deep`},
	{"tab", "rules:\n\t- remote: 192.0.2.0/24", `not valid YAML`},
	{"two documents", "instance: a\n---\ninstance: b", `t.yaml:3:1: a second document`},
	{"list at the top", "- instance: a", `the configuration must be a mapping`},
	{"mapping for a list", "rules: {remote: 192.0.2.0/24}", `rules must be a list, not a mapping`},
	{"list for a value", "instance: [a]", `instance must be a single value, not a list`},
	{"empty element", "rules:\n  -", `rules has an empty element`},
	{"anchor", "instance: &a b", `write the value out`},
	{"instance", "instance: Two Words", `up to 32 lower-case letters`},
	{"relative path", "state_dir: var", `must be an absolute path`},
	{"dots", "cgroup: /a/../b", `must be an absolute path`},
	{"interfaces word", "interfaces: eth0", `must be auto or a list, like [eth0]`},
	{"interface name", "interfaces: [a-very-long-interface]", `is no interface name`},
	{"listen word", "listen: everywhere", `must be an address and a port`},
	{"listen port 0", `listen: "[::]:0"`, `must be an address and a port`},
	{"listen name", `listen: "localhost:4820"`, `must be an address and a port`},
	{"listen list", "listen: ['[::]:1']", `listen must be a single value, not a list`},
	{"dscp zero", "dscp: cs0", `must be a number from 1 to 63`},
	{"dscp", "dscp: af14", `dscp "af14" must be a number from 1 to 63`},
	{"dscp number", "dscp: 64", `dscp "64" must be`},
	{"mark_bit", "mark_bit: 3", `more than one bit`},
	{"mark_bit size", "mark_bit: 0x100000000", `must be a number from 1 to`},
	{"history unit", "history: {memory: 256}", `has no unit`},
	{"history small", "history: {memory: 1kB}", `must be from 8 MiB`},
	{"history disk small", "history: {disk: 1MiB}", `must be from 16 MiB`},
	{"history directory alone", "history: {directory: /srv/h}", `no size on disk`},
	{"history directory", "history: {disk: 1GiB, directory: h}", `must be an absolute path`},
	{"no remote", "rules: [{ports: [80]}]", `a rule has no remote`},
	{"bad prefix", "rules: [{remote: 10.0.0/8}]", `t.yaml:1:18: remote "10.0.0/8" is not a prefix`},
	{"host bits", "rules: [{remote: 10.0.0.1/8}]", `has bits set behind its length; write 10.0.0.0/8`},
	{"mapped", "rules: [{remote: '::ffff:10.0.0.0/104'}]", `write it as IPv4`},
	{"port word", "rules: [{remote: 10.0.0.0/8, ports: [http]}]", `port "http" must be a number from 1 to 65535`},
	{"port 0", "rules: [{remote: 10.0.0.0/8, ports: [0]}]", `port "0" must be`},
	{"port large", "rules: [{remote: 10.0.0.0/8, ports: [65536]}]", `port "65536" must be`},
	{"range backwards", "rules: [{remote: 10.0.0.0/8, ports: [90-80]}]", `port "90-80" must be`},
	{"too many ports", "rules: [{remote: 10.0.0.0/8, ports: [1-65535]}]", `names 65535 ports, the most is 4096`},
	{"no ports", "rules: [{remote: 10.0.0.0/8, ports: []}]", `ports is empty`},
	{"congestion long", "rules: [{remote: 10.0.0.0/8, congestion: a_name_of_17_char}]", `longer than the 15 characters`},
	{"congestion odd", "rules: [{remote: 10.0.0.0/8, congestion: B B R}]", `must be auto or an algorithm's name`},
	{"candidates word", "auto: {candidates: bbr}", `t.yaml:1:20: candidates must be a list`},
	{"candidates none", "auto: {candidates: []}", `candidates is empty; name some, or leave the key out to have [tl_illinois`},
	{"candidate dctcp", "auto:\n  candidates: [bbr, dctcp]", `t.yaml:2:21: candidate "dctcp": dctcp is never chosen for a path: `},
	{"candidate auto", "auto: {candidates: [auto]}", `candidate "auto" chooses itself; name algorithms`},
	{"candidate twice", "auto: {candidates: [bbr, bbr]}", `candidate "bbr" is given twice; remove one`},
	{"candidate long", "auto: {candidates: [a_name_of_17_char]}", `longer than the 15 characters`},
	{"candidate odd", "auto: {candidates: [B B R]}", `candidate "B B R" must be an algorithm's name, like bbr or cubic`},
	{"auto key", "auto: {dry-run: true}", `t.yaml:1:8: unknown key "dry-run" in auto; did you mean "dry_run"?`},
	{"auto word", "auto: on", `auto must be a mapping of keys to values`},
	{"dry_run", "auto: {dry_run: yes}", `dry_run "yes" is unknown; known are true, false`},
	{"explore", "auto: {explore: tru}", `explore "tru" is unknown; did you mean "true"?`},
	{"hold bare", "auto: {hold: 10}", `hold: time "10": not a time; write it like`},
	{"hold short", "auto: {hold: 100ms}", `hold "100ms" must be from 1s to 1h00m`},
	{"hold long", "auto: {hold: 2h}", `must be from 1s to`},
	{"window bare", "rules: [{remote: 10.0.0.0/8, window: 65536}]", `window "65536" has no unit`},
	{"window unit", "rules: [{remote: 10.0.0.0/8, window: 64Mb}]", `unknown unit "Mb"`},
	{"window large", "rules: [{remote: 10.0.0.0/8, window: 2GiB}]", `must be from 16 KiB to 1 GiB`},
	{"weight alone", "rules: [{remote: 10.0.0.0/8, weight: 2}]", `weight is of flows that share a reserved path`},
	{"weight large", "rules: [{remote: 10.0.0.0/8, window: reserved, weight: 101}]", `weight`},
	{"pacing", "rules: [{remote: 10.0.0.0/8, pacing: 10}]", `it has no unit`},
	{"pacing low", "rules: [{remote: 10.0.0.0/8, pacing: 10bit}]", `below 8kbit`},
	{"pacing high", "rules: [{remote: 10.0.0.0/8, pacing: 35Gbit}]", `above the 34Gbit`},
	{"priority", "rules: [{remote: 10.0.0.0/8, priority: high}]", `priority "high" is unknown; known are off, retransmit`},
	{"splice", "rules: [{remote: 10.0.0.0/8, splice: forse}]", `splice "forse" is unknown; did you mean "force"?`},
	{"dedup without peer", "rules: [{remote: 10.0.0.0/8, dedup: {history: a}}]", `dedup has no peer`},
	{"codec", "peers: [{name: a, codec: wanproxi}]", `t.yaml:1:26: codec "wanproxi" is unknown; did you mean "wanproxy"?`},
	{"stage", "rules:\n  - {remote: 10.0.0.0/8, dedup: {peer: a, stage: gzip}}", `t.yaml:2:50: stage "gzip" is unknown; known are zstd, zlib, none`},
	{"segment odd", "peers: [{name: a, codec: wanproxy, segment: 1000}]", `segment 1000 must be a power of two, like 512`},
	{"segment large", "peers: [{name: a, codec: wanproxy, segment: 4096}]", `segment "4096" must be a number from 128 to 2048`},
	{"segment of native", "peers: [{name: a, address: 'h:1', key: '" + keyA + "'}]\nrules: [{remote: 10.0.0.0/8, dedup: {peer: a, segment: 512}}]",
		`t.yaml:2:56: segment is for the codecs wanproxy and wanproxy2, and that of rule "10.0.0.0/8" is native; remove it, or set codec: wanproxy`},
	{"unknown peer", "rules: [{remote: 10.0.0.0/8, dedup: {peer: busan}}]", `t.yaml:1:44: peer "busan" is not defined: there are no peers`},
	{"misspelt peer", "peers: [{name: busan, address: 'h:1', key: '" + keyA + "'}]\nrules: [{remote: 10.0.0.0/8, dedup: {peer: bussan}}]",
		`peer "bussan" is not defined; did you mean "busan"?`},
	{"equal rules", "rules:\n  - {remote: 10.0.0.0/8, ports: [80, 81]}\n  - {remote: 10.0.0.0/8, ports: [443, 81]}",
		`t.yaml:3:14: the rule equals the one in line 2: both are for 10.0.0.0/8 port 81`},
	{"equal rules without ports", "rules:\n  - {remote: 10.0.0.0/8}\n  - {remote: 10.0.0.0/8}", `both are for 10.0.0.0/8 without ports`},
	{"equal rule names", "rules:\n  - {name: a, remote: 10.0.0.0/8}\n  - {name: a, remote: 11.0.0.0/8}", `rule name "a" is also that of the rule in line 2`},
	{"peer without key", "peers: [{name: a, address: 'h:1'}]", `peer "a" has no key`},
	{"peer without name", "peers: [{address: 'h:1', key: '" + keyA + "'}]", `a peer has no name`},
	{"peer address", "peers: [{name: a, address: h, key: '" + keyA + "'}]", `must be a host and a port`},
	{"peer address port", "peers: [{name: a, address: 'h:0', key: '" + keyA + "'}]", `must be a host and a port`},
	{"peer key", "peers: [{name: a, address: 'h:1', key: 'ed25519:abc'}]", `is not a fingerprint`},
	{"same name", "peers:\n  - {name: a, address: 'h:1', key: '" + keyA + "'}\n  - {name: a, address: 'h:1', key: '" + keyB + "'}", `peer name "a" is also that of the peer in line 2`},
	{"same key", "peers:\n  - {name: a, address: 'h:1', key: '" + keyA + "'}\n  - {name: b, address: 'h:1', key: '" + keyA + "'}", `has the key of the peer in line 2`},
	{"cannot meet", "peers: [{name: a, key: '" + keyA + "'}]", `they cannot meet`},
	{"allow without ports", "peers: [{name: a, allow: [10.0.0.0/8]}]", `no ports; write it like`},
	{"allow bare IPv6", "peers: [{name: a, allow: ['fd00::/8:80']}]", `an IPv6 prefix stands in brackets`},
	{"allow bracket", "peers: [{name: a, allow: ['[fd00::/8]']}]", `no ports after the bracket`},
	{"allow port", "peers: [{name: a, allow: ['10.0.0.0/8:http']}]", `port "http" must be`},
	{"allow loopback", "peers: [{name: a, allow: ['127.0.0.1:80']}]", `never reachable through a peer`},
}

func TestBadFiles(t *testing.T) {
	for _, c := range badFiles {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("t.yaml", []byte(c.in))
			if err == nil {
				t.Fatal("no error")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
			for line := range strings.SplitSeq(err.Error(), "\n") {
				if !strings.HasPrefix(line, "t.yaml:") {
					t.Errorf("line without a place: %q", line)
				}
			}
		})
	}
}

// One run names every mistake, not only the first.
func TestAllProblemsAtOnce(t *testing.T) {
	_, err := Parse("t.yaml", []byte("cgruop: /\ndscp: 99\nrules: [{remote: x, ports: [0]}]"))
	if ps, ok := err.(Problems); !ok || len(ps) != 4 {
		t.Errorf("want 4 problems, got %v", err)
	}
}
