// SPDX-License-Identifier: Apache-2.0

package vmtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/internal/testkit"
)

// footprintView is what trunkline could leave behind in a kernel.
type footprintView struct {
	programs []string // BPF programs and links named tl_
	netns    string
	cgroups  []string
	sysctls  map[string]string
	qdiscs   string
}

func footprint(t *testing.T) footprintView {
	t.Helper()
	f := footprintView{sysctls: map[string]string{}}
	f.programs = append(linesWith(t, "tl_", "bpftool", "prog", "show"), linesWith(t, "tl_", "bpftool", "link", "show")...)
	f.netns = strings.Join(linesWith(t, "", "ip", "netns", "list"), "\n")
	f.qdiscs = strings.Join(linesWith(t, "", "tc", "qdisc", "show"), "\n")
	for _, name := range []string{"rmem_max", "wmem_max"} {
		text, err := os.ReadFile("/proc/sys/net/core/" + name)
		if err != nil {
			t.Fatal(err)
		}
		f.sysctls[name] = strings.TrimSpace(string(text))
	}
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		found, _ := filepath.Glob(root + "/trunkline-*")
		f.cgroups = append(f.cgroups, found...)
	}
	return f
}

// linesWith runs a command and returns the lines that contain a word.
func linesWith(t *testing.T, word string, name string, args ...string) []string {
	t.Helper()
	out, err := exec.Command(testkit.NeedProgram(t, name), args...).Output()
	if err != nil {
		t.Fatalf("%s %v: %v", name, args, err)
	}
	var found []string
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, word) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

// wantSame says that nothing has been added since. Programs go a moment after their last user.
func (f footprintView) wantSame(t *testing.T) {
	t.Helper()
	var now footprintView
	for end := time.Now().Add(testkit.Wait(5 * time.Second)); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if now = footprint(t); len(now.programs) <= len(f.programs) {
			break
		}
	}
	if len(now.programs) > len(f.programs) {
		t.Errorf("programs and links left: %v", now.programs)
	}
	if now.netns != f.netns || now.qdiscs != f.qdiscs {
		t.Errorf("namespaces or qdiscs changed: %q %q, were %q %q", now.netns, now.qdiscs, f.netns, f.qdiscs)
	}
	if !slices.Equal(now.cgroups, f.cgroups) {
		t.Errorf("cgroups %v, were %v", now.cgroups, f.cgroups)
	}
	for name, old := range f.sysctls {
		if now.sysctls[name] != old {
			t.Errorf("net.core.%s is %s, was %s", name, now.sysctls[name], old)
		}
	}
}

// A killed agent leaves its pins, which people may be reading; cleanup removes them and nothing else.
func TestCleanupAfterAKill(t *testing.T) {
	testkit.NeedRoot(t)
	before := footprint(t)
	bpffs := t.TempDir()
	if err := unix.Mount("bpf", bpffs, "bpf", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(bpffs, unix.MNT_DETACH) })
	theirs := filepath.Join(bpffs, "trunkline-of-another")
	if err := os.Mkdir(theirs, 0o755); err != nil {
		t.Fatal(err)
	}

	w := newSites(t, setup{})
	w.a.writeConfig(w.a.config + "bpffs: " + bpffs + "\n")
	w.a.start()
	w.b.start()
	w.waitPeers()
	w.a.need(t, "pins")
	serve(t, w.lab.B, w.lab.B.Addr4)
	hold := startClient(t, w.lab.A.Namespace, "drink", arg("addr", at(w.lab.B.Addr4, portHold)))
	waitFor(t, 5*time.Second, "the flow to be open", func() bool { return w.a.peer().RawReceived > 0 })

	pins := filepath.Join(bpffs, "trunkline", "a")
	dump := strings.Join(linesWith(t, "", "bpftool", "map", "dump", "pinned", filepath.Join(pins, "tl_flow")), "\n")
	for _, field := range []string{"srtt_us", "delivered_Bps", "bytes_acked", "retransmits", "window_bytes"} {
		if !strings.Contains(dump, field) {
			t.Errorf("bpftool shows no field %s of a flow: %s", field, dump)
		}
	}
	out, err := exec.Command(binary(t), "cleanup", "--config", w.a.path("trunkline.yaml")).CombinedOutput()
	if err == nil || strings.Count(string(out), "\n") != 1 {
		t.Errorf("cleanup under a running agent said %q (%v), want one line of error", out, err)
	}
	w.a.kill()
	hold.wait()
	if _, err := os.Stat(pins); err != nil {
		t.Errorf("nothing to clean up: %v", err)
	}
	trunkline(t, "cleanup", "--config", w.a.path("trunkline.yaml"))
	if _, err := os.Stat(filepath.Join(bpffs, "trunkline")); !os.IsNotExist(err) {
		t.Errorf("after cleanup the pins' directory is still there (%v)", err)
	}
	if _, err := os.Stat(theirs); err != nil {
		t.Errorf("cleanup removed what is not its own: %v", err)
	}
	trunkline(t, "cleanup", "--config", w.a.path("trunkline.yaml")) // again: nothing to do is no error
	w.b.stop()
	before.cgroups = footprint(t).cgroups // the lab's own are still in use
	before.wantSame(t)
}
