// SPDX-License-Identifier: Apache-2.0

package vmtest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/internal/testkit"
)

// dumped is what bpftool must name in a pinned map: fields of the key and of the value as bpf/maps.h has them; none where
// it is a plain number.
type dumped struct {
	key, value []string
	entries    bool // the agents of the test leave some
}

var dumps = map[string]dumped{
	"tl_agent":        {nil, []string{"heartbeat_ns", "netns_cookie", "steering", "engine_port4", "dscp", "mark_bit"}, true},
	"tl_bypass":       {[]string{"addr", "port"}, []string{"until_ns", "reason"}, true},
	"tl_choice":       {[]string{"prefix", "prefix_bits", "peer_id"}, []string{"congestion", "version", "since_ns"}, false},
	"tl_class":        {[]string{"prefixlen", "addr"}, nil, true},
	"tl_dest":         {[]string{"prefixlen", "addr"}, []string{"where", "source"}, true},
	"tl_flow":         {nil, []string{"remote_addr", "remote_port", "srtt_us", "delivered_Bps", "bytes_acked", "retransmits", "congestion"}, true},
	"tl_iface":        {nil, []string{"l2_bytes", "marked", "seen"}, true},
	"tl_loss_dropped": {nil, nil, true},
	"tl_path":         {[]string{"prefix", "prefix_bits", "peer_id"}, []string{"flows", "bytes_acked", "srtt_us", "rtt_min_us"}, true},
	"tl_peer":         {nil, nil, true},
	"tl_reason":       {nil, nil, true},
	"tl_rule":         {[]string{"class_id", "port"}, []string{"rule_id", "peer_id", "window_bytes", "pacing_Bps", "priority", "congestion"}, true},
}

// entry is one of `bpftool map dump`: the bytes, and what BTF makes of them.
type entry struct {
	Formatted *struct {
		Key    json.RawMessage `json:"key"`
		Value  json.RawMessage `json:"value"`
		Values json.RawMessage `json:"values"` // of each CPU
	} `json:"formatted"`
}

// People read the pinned maps with bpftool, by the names of their fields.
func TestBpftoolNamesTheFieldsOfPinnedMaps(t *testing.T) {
	testkit.NeedRoot(t)
	bpffs := t.TempDir()
	if err := unix.Mount("bpf", bpffs, "bpf", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(bpffs, unix.MNT_DETACH) })
	w := newSites(t, setup{rules: forcedSplice})
	w.a.writeConfig(w.a.config + "bpffs: " + bpffs + "\n")
	w.a.start()
	w.b.start()
	w.waitPeers()
	w.a.need(t, "pins")
	serve(t, w.lab.B, w.lab.B.Addr4)
	client(t, w.lab.A, "fetch", arg("addr", at(w.lab.B.Addr4, portSource)), "-bytes=100000").wantAll(t, 1)

	dir := filepath.Join(bpffs, "trunkline", "a")
	pins, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, pin := range pins {
		names = append(names, pin.Name())
	}
	for name := range dumps {
		if !slices.Contains(names, name) {
			t.Errorf("%s is not among the pinned maps %v", name, names)
		}
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			want, known := dumps[name]
			if !known {
				t.Fatal("the test knows no fields of it")
			}
			if name == "tl_iface" {
				w.a.need(t, "marks")
			}
			want.check(t, filepath.Join(dir, name))
		})
	}
}

func (d dumped) check(t *testing.T, pin string) {
	out, err := exec.Command(testkit.NeedProgram(t, "bpftool"), "-j", "map", "dump", "pinned", pin).CombinedOutput()
	if err != nil {
		t.Fatalf("bpftool: %v: %s", err, out)
	}
	var entries []entry
	if err := json.Unmarshal(out, &entries); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if d.entries && len(entries) == 0 {
		t.Fatal("no entry")
	}
	for _, e := range entries {
		if e.Formatted == nil {
			t.Fatalf("nothing but bytes: %s", out)
		}
		value := e.Formatted.Value
		if value == nil {
			value = e.Formatted.Values
		}
		wantFields(t, "key", e.Formatted.Key, d.key)
		wantFields(t, "value", value, d.value)
	}
}

func wantFields(t *testing.T, what string, text json.RawMessage, fields []string) {
	t.Helper()
	if len(text) == 0 {
		t.Fatalf("no %s", what)
	}
	for _, f := range fields {
		if !strings.Contains(string(text), `"`+f+`"`) {
			t.Errorf("the %s names no field %s: %s", what, f, text)
		}
	}
}
