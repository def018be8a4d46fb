// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"os"
	"path/filepath"
	"testing"
)

func TestChoicesSince(t *testing.T) {
	before := "level=INFO msg=\"another congestion control is chosen for a path\" path=10.81.2.0/24 old=cubic new=reno why=earlier\n"
	log := filepath.Join(t.TempDir(), "agent.log")
	if n := logSize(log); n != 0 {
		t.Errorf("a log that is not there has %d bytes", n)
	}
	text := before + "level=INFO msg=ready rules=1\n" +
		"level=INFO msg=\"another congestion control is chosen for a path\" path=10.81.2.0/24 peer=far old=tl_illinois new=bbr why=\"7 of the last 9 losses came without a queue\"\n" +
		"level=INFO msg=\"another congestion control is chosen for a path\" path=10.81.2.0/24 old=bbr new=tl_illinois why=explored\n"
	if err := os.WriteFile(log, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := choicesSince(log, int64(len(before)))
	if want := "tl_illinois to bbr (7 of the last 9 losses came without a queue); bbr to tl_illinois (explored)"; got != want || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := choicesSince(log, 1<<20); got != "" || err != nil {
		t.Errorf("beyond the end: %q, %v", got, err)
	}
}
