// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Windows are halved when memory becomes scarce, before the kernel begins to drop what has arrived: once a second while it is,
// to an eighth at least, and doubled again after it was not for ten seconds.
const (
	maxSqueeze    = 3
	squeezeAfter  = time.Second
	relaxAfter    = 10 * time.Second
	stallPerMille = 100 // of the time that some task waited for memory, over ten seconds
	limitPercent  = 90  // of a cgroup's limit of memory
)

// pressureState is what memory was like at the latest look.
type pressureState struct {
	why    string    // what is scarce; "": nothing
	change time.Time // of squeeze
	scarce time.Time // when it was so the latest
}

// followPressure looks at memory and says whether windows change; applyMu is held.
func (l *Loader) followPressure(now time.Time) bool {
	p := &l.pressure
	why := memoryScarce(l.cgroup)
	if why != "" {
		p.why, p.scarce = why, now
	}
	switch {
	case why != "" && l.squeeze < maxSqueeze && now.Sub(p.change) >= squeezeAfter:
		l.squeeze++
	case why == "" && l.squeeze > 0 && now.Sub(p.scarce) >= relaxAfter && now.Sub(p.change) >= relaxAfter:
		l.squeeze--
	default:
		return false
	}
	p.change = now
	l.log.Info("windows follow memory", "part", fmt.Sprintf("1/%d", 1<<l.squeeze), "why", why)
	return true
}

// memoryScarce says what is scarce: TCP's memory, the host's, or that of the instance's cgroup or one above it.
func memoryScarce(cgroup string) string {
	if pages, most := tcpPages(), readNumbers("/proc/sys/net/ipv4/tcp_mem"); len(most) == 3 && pages > most[0]+(most[1]-most[0])/2 {
		return fmt.Sprintf("TCP holds %d of %d pages", pages, most[1])
	}
	if stall := stalled("/proc/pressure/memory"); stall > stallPerMille {
		return fmt.Sprintf("tasks wait for memory %d %% of the time", stall/10)
	}
	for dir := cgroup; len(dir) > 1; dir = filepath.Dir(dir) {
		limit := readNumbers(filepath.Join(dir, "memory.max"))
		if len(limit) != 1 {
			continue
		}
		if held := heldBytes(filepath.Join(dir, "memory.stat")); held > limit[0]/100*limitPercent {
			return fmt.Sprintf("%s holds %d MiB of %d", dir, held>>20, limit[0]>>20)
		}
	}
	return ""
}

// heldBytes returns what of a cgroup's memory the kernel cannot take back at once: all but its cache of files.
func heldBytes(path string) (sum uint64) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		words := strings.Fields(line)
		if len(words) == 2 && (words[0] == "anon" || words[0] == "sock" || words[0] == "kernel") {
			n, _ := strconv.ParseUint(words[1], 10, 64)
			sum += n
		}
	}
	return sum
}

// tcpPages returns the pages that TCP's buffers hold.
func tcpPages() uint64 {
	b, err := os.ReadFile("/proc/net/sockstat")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "TCP:" {
			continue
		}
		for i := 1; i+1 < len(words); i += 2 {
			if words[i] == "mem" {
				n, _ := strconv.ParseUint(words[i+1], 10, 64)
				return n
			}
		}
	}
	return 0
}

// stalled returns the share of time, in thousandths, that some task waited, of the latest ten seconds; 0 where the kernel does
// not count it.
func stalled(path string) int {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	// some avg10=0.00 avg60=0.00 avg300=0.00 total=0
	_, rest, ok := strings.Cut(string(b), "avg10=")
	if !ok {
		return 0
	}
	word, _, _ := strings.Cut(rest, " ")
	percent, err := strconv.ParseFloat(word, 64)
	if err != nil {
		return 0
	}
	return int(percent * 10)
}
