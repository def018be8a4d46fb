// SPDX-License-Identifier: Apache-2.0

package choice

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// replay shows a chooser what was recorded of one flow that had tl_illinois throughout, in a virtual machine under exact time,
// and returns the changes until it would have had another algorithm: what came then was not recorded.
func replay(t *testing.T, c *Chooser, name string) (changes []Change) {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Split(lines.Text(), "\t")
		if strings.HasPrefix(fields[0], "#") {
			continue
		}
		n := make([]uint64, len(fields))
		for i := range fields[1:] {
			if n[i], err = strconv.ParseUint(fields[i+1], 10, 64); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		at := begin.Add(time.Duration(n[0]) * time.Millisecond)
		if fields[0] == "loss" {
			c.Lost(Loss{Cookie: 1, Path: here, At: at, SRTTUs: uint32(n[1]), RTTMinUs: uint32(n[2]), CwndPackets: uint32(n[3]), DeliveredBps: n[4]})
			continue
		}
		changes = append(changes, c.Tick(at, []Flow{{Cookie: 1, Path: here, Congestion: "tl_illinois", SRTTUs: uint32(n[1]), RTTMinUs: uint32(n[2]),
			MSSBytes: packetBytes, Age: time.Duration(n[3]) * time.Millisecond, DeliveredBps: n[4], BytesAcked: n[5], SegsOut: uint32(n[6]), Retransmits: uint32(n[7])}})...)
		if len(changes) > 0 {
			return changes
		}
	}
	return nil
}

func TestRecorded(t *testing.T) {
	for _, c := range []struct {
		name   string
		new    string        // "": no change
		within time.Duration // of the flow's first event
		class  Class
	}{
		// A link that varies is none with noise, whatever single samples say.
		{"lte-att.tsv", "", 0, Variable},
		{"lte-att-2.tsv", "", 0, Congestive},
		// Packets in a row wait for each other, which is no queue: on a slow link these are some milliseconds.
		{"noise-10Mbit.tsv", "bbr", 2 * time.Second, Random},
		// Nothing but the round trip and the rate tells of the new length; losses come too rarely.
		{"longer-1e-3.tsv", "tl_illinois", 10 * time.Second, Congestive},
	} {
		chooser := New(Options{Candidates: DefaultCandidates})
		changes := replay(t, chooser, c.name)
		d := chosen(t, chooser)
		changed := len(changes) == 1 && changes[0].New == c.new && changes[0].At.Sub(begin) < c.within
		if d.Class != c.class || c.new == "" && len(changes) > 0 || c.new != "" && !changed {
			t.Errorf("%s: want %q within %v for a %s path, it is %+v\n%+v", c.name, c.new, c.within, c.class, changes, d)
		}
	}
}
