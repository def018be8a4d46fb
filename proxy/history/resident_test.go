// SPDX-License-Identifier: Apache-2.0

package history

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestResident reads eight times what may be in memory out of the files of both ends, and asks the kernel what is mapped in.
func TestResident(t *testing.T) {
	const limit = 16 << 20
	e := newEnds(t, limit, 8*limit)
	data := noise(1<<20, 1)
	for range 8 * limit >> 20 {
		e.send("g", data)
	}
	before := rssFile(t)
	g := e.senders().Group("g")
	r := e.receivers().Open("g")
	defer r.Close()
	l := g.Leg()
	defer l.Close()
	p := l.Begin()
	for pos := p.Low; pos+1<<20 <= p.Head; pos += 1 << 20 {
		g.Forward(pos, data)
		_ = r.Read(p.Generation, pos, make([]byte, 1<<20)) // what is not there need not be read
		for _, s := range []*Store{e.near, e.far} {
			if u := s.Usage(); u.MemoryBytes > limit {
				t.Fatalf("%+v", u)
			}
		}
	}
	l.Done()
	if u := e.near.Usage(); u.MemoryBytes < limit/2 {
		t.Errorf("%d bytes are mapped in after reading", u.MemoryBytes)
	}
	// The kernel counts by the page and by the processor; a few megabytes more are the binary's own pages.
	if more := rssFile(t) - before; more > 2*limit+12<<20 {
		t.Errorf("%d MiB of files are resident, two times %d are allowed", more>>20, limit>>20)
	}
}

// rssFile returns how many bytes of files are mapped in.
func rssFile(t *testing.T) (bytes int64) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if n, _ := fmt.Sscanf(line, "RssFile: %d kB", &bytes); n == 1 {
			return bytes << 10
		}
	}
	t.Skip("the kernel does not say what is mapped in")
	return 0
}
