// SPDX-License-Identifier: Apache-2.0

package vmtest

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/trunkline/trunkline/vmtest/lab"
)

// RED drops before its queue is full, and the link stays busy.
func TestRED(t *testing.T) {
	r := newRouted(t)
	r.bottleneck(t)
	r.qdisc(t, "red", "dev "+toServer+" parent 1:1 handle 10: red limit 200KB min 15KB max 45KB avpkt 1500 burst 20 probability 0.1 bandwidth 4mbit")
	got := r.iperf3(t, "-t 8 -C cubic")
	var qdiscs []struct {
		Kind  string `json:"kind"`
		Drops uint64 `json:"drops"`
		Early uint64 `json:"early"`
	}
	out := r.tc(t, "-s -j qdisc show dev "+toServer)
	if err := json.Unmarshal([]byte(out), &qdiscs); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	for _, q := range qdiscs {
		if q.Kind == "red" && (q.Drops == 0 || q.Early == 0) {
			t.Errorf("%d packets dropped, %d of them early: %s", q.Drops, q.Early, out)
		}
	}
	wantBetween(t, "goodput in Mbit/s", got.End.Received.BitsPerSecond/1e6, 0.5*4*tcpShare, 1.1*4*tcpShare)
}

// Retransmissions carry the code point 10, by which the router puts them into the better of two RED queues. None of them
// is lost again there, while unmarked packets are.
func TestGREDSparesMarkedRetransmissions(t *testing.T) {
	r := newRouted(t)
	r.bottleneck(t)
	r.qdisc(t, "gred", "dev "+toServer+" parent 1:1 handle 10: gred setup DPs 3 default 2 grio")
	// The first is never full, the second drops early.
	r.tc(t, "qdisc change dev "+toServer+" parent 1:1 handle 10: gred DP 1 limit 800KB min 500KB max 700KB avpkt 1500 burst 350 probability 0.02 bandwidth 4mbit prio 1")
	r.tc(t, "qdisc change dev "+toServer+" parent 1:1 handle 10: gred DP 2 limit 60KB min 15KB max 45KB avpkt 1500 burst 20 probability 0.1 bandwidth 4mbit prio 2")
	r.classify(t, r.router.Namespace, toClient)
	r.classify(t, r.s, "eth0")
	r.startMarking(t)

	r.iperf3(t, "-t 12 -P 4 -C cubic")
	in, out := r.classified(t, r.router.Namespace, toClient), r.classified(t, r.s, "eth0")
	t.Logf("marked and unmarked packets: in %v, out %v", in, out)
	if in.marked < 20 || in.unmarked <= out.unmarked {
		t.Errorf("too few retransmissions or losses for a judgement: in %+v, out %+v", in, out)
	}
	if in.marked != out.marked {
		t.Errorf("of %d marked packets %d came through", in.marked, out.marked)
	}
}

// classify counts packets by code point where they come in. The class of an ingress filter stays with the packet as its
// tc_index, by which GRED chooses the queue.
func (r *routed) classify(t *testing.T, in *lab.Namespace, dev string) {
	t.Helper()
	r.tool(t, in, "tc", "qdisc add dev "+dev+" handle ffff: ingress")
	r.tool(t, in, "tc", "filter add dev "+dev+" parent ffff: protocol ip pref 1 u32 match ip protocol 6 0xff match ip tos 0x28 0xfc flowid :1 action pass")
	r.tool(t, in, "tc", "filter add dev "+dev+" parent ffff: protocol ip pref 2 u32 match ip protocol 6 0xff flowid :2 action pass")
}

type counts struct{ marked, unmarked uint64 }

var sentPackets = regexp.MustCompile(`Sent [0-9]+ bytes ([0-9]+) pkt`)

func (r *routed) classified(t *testing.T, in *lab.Namespace, dev string) counts {
	t.Helper()
	of := func(pref int) uint64 {
		out := r.tool(t, in, "tc", fmt.Sprintf("-s filter show dev %s parent ffff: pref %d", dev, pref))
		m := sentPackets.FindStringSubmatch(out)
		if m == nil {
			t.Fatalf("no count in %s", out)
		}
		n, _ := strconv.ParseUint(m[1], 10, 64)
		return n
	}
	return counts{of(1), of(2)}
}

// startMarking runs an agent at the client that marks retransmissions to the server.
func (r *routed) startMarking(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	g := &agent{t: t, site: &lab.Site{Namespace: r.c}, name: "c", dir: dir}
	g.config = fmt.Sprintf("instance: c\ncgroup: %s\nstate_dir: %s\nrun_dir: %s\nrules:\n  - {remote: %s/32, priority: retransmit}\n",
		r.c.CgroupPath, filepath.Join(dir, "state"), filepath.Join(dir, "run"), r.sAddr)
	g.writeConfig(g.config)
	g.start()
	g.need(t, "marks")
}
