// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/trunkline/trunkline/cmd/internal/control"
	"github.com/trunkline/trunkline/cmd/internal/units"
	"github.com/trunkline/trunkline/vmtest/lab"
)

// Fetch is what one of the three cost. Bytes on the WAN are those of both directions, headers included.
type Fetch struct {
	Name              string  `json:"fetch"`
	Seconds           float64 `json:"s"`
	WANBytes          uint64  `json:"wan_bytes"`
	Ratio             float64 `json:"ratio"`    // bytes of the file for each on the WAN
	Speedup           float64 `json:"speed_up"` // against the direct fetch
	Congestion        string  `json:"congestion"`
	WindowBytes       uint32  `json:"window_bytes"` // of the receiver, fixed; 0: the kernel tunes it
	Retransmits       uint64  `json:"retransmits"`  // segments
	RetransmitsMarked uint64  `json:"retransmits_marked"`
	FirstMarked       uint64  `json:"first_marked"`
	SHA256OK          bool    `json:"sha256_ok"`
}

// Result is what the demo found. Retransmissions are the WAN's own ground truth, from the first packet to the last fetch,
// the agents' talk included.
type Result struct {
	DirectSeconds     float64 `json:"direct_s"`
	ColdSeconds       float64 `json:"cold_s"`
	WarmSeconds       float64 `json:"warm_s"`
	WANBytesDirect    uint64  `json:"wan_bytes_direct"`
	WANBytesCold      uint64  `json:"wan_bytes_cold"`
	WANBytesWarm      uint64  `json:"wan_bytes_warm"`
	Congestion        string  `json:"congestion"`   // of the optimised flows
	WindowBytes       uint32  `json:"window_bytes"` // of the optimised flows
	Retransmits       uint64  `json:"retransmits"`
	RetransmitsMarked uint64  `json:"retransmits_marked"`
	FirstMarked       uint64  `json:"first_marked"`
	SynAckRetransmits uint64  `json:"syn_ack_retransmits"` // cannot be marked, and so are not among the others
	Marks             string  `json:"marks"`               // "on", or "off: why"
	Splice            string  `json:"splice"`              // likewise
	SHA256OK          bool    `json:"sha256_ok"`
	SHA256            string  `json:"sha256"`
	File              string  `json:"file"`
	FileBytes         int64   `json:"file_bytes"`
	RateMbps          float64 `json:"rate_Mbps"` // megabits per second
	RTTMilliseconds   float64 `json:"rtt_ms"`
	Loss              float64 `json:"loss"` // 0 to 1
	Seed              uint64  `json:"seed"`
	LateMilliseconds  float64 `json:"wan_late_max_ms"` // the worst packet: large on a machine busy with other work
	Fetches           []Fetch `json:"fetches"`
}

func newResult(o Options, f file, sum [32]byte) *Result {
	return &Result{
		SHA256OK: true, SHA256: hex.EncodeToString(sum[:]), File: f.path, FileBytes: f.size,
		RateMbps: float64(o.Rate) / 1e6, RTTMilliseconds: float64(o.RTT.Microseconds()) / 1e3, Loss: o.Loss, Seed: o.Seed,
	}
}

// add takes in a fetch; the direct one comes first.
func (r *Result) add(f Fetch, same bool) {
	f.SHA256OK = same
	r.SHA256OK = r.SHA256OK && same
	f.Ratio = float64(r.FileBytes) / float64(max(f.WANBytes, 1))
	f.Speedup = 1
	if len(r.Fetches) > 0 {
		f.Speedup = r.Fetches[0].Seconds / max(f.Seconds, 1e-3)
	}
	r.Fetches = append(r.Fetches, f)
	switch f.Name {
	case "direct":
		r.DirectSeconds, r.WANBytesDirect = f.Seconds, f.WANBytes
	case "cold":
		r.ColdSeconds, r.WANBytesCold = f.Seconds, f.WANBytes
		r.Congestion, r.WindowBytes = f.Congestion, f.WindowBytes
	case "warm":
		r.WarmSeconds, r.WANBytesWarm = f.Seconds, f.WANBytes
	}
}

// finish takes in what holds for the whole.
func (r *Result) finish(st lab.Stats, agent control.Status) {
	r.Retransmits, r.RetransmitsMarked, r.FirstMarked = st.Retransmits, st.RetransmitsMarked, st.FirstMarked
	r.SynAckRetransmits = st.SynAckRetransmits
	r.LateMilliseconds = float64(st.LateMax.Microseconds()) / 1e3
	r.Marks, r.Splice = state(agent, "marks"), state(agent, "splice")
}

// state gives a feature of the agent as "on", or "off: why".
func state(agent control.Status, feature string) string {
	for _, f := range agent.Features {
		switch {
		case f.Name == feature && f.On:
			return "on"
		case f.Name == feature:
			return "off: " + f.Detail
		}
	}
	return "off: the agent does not know it"
}

func (r *Result) write(w io.Writer, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	var b strings.Builder
	r.table(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Result) table(b *strings.Builder) {
	fmt.Fprintf(b, "\n%s, %s bytes, over %s with %.4g ms RTT and %.4g %% loss\n\n", r.File, thousands(uint64(r.FileBytes)),
		formatRate(r.RateMbps*1e6), r.RTTMilliseconds, r.Loss*100)
	const row = "%-7s %8s %13s %8s %9s  %-11s %8s %12s %7s\n"
	fmt.Fprintf(b, row, "fetch", "seconds", "WAN bytes", "ratio", "speed-up", "congestion", "window", "retransmits", "marked")
	for _, f := range r.Fetches {
		fmt.Fprintf(b, row, f.Name, strconv.FormatFloat(f.Seconds, 'f', 2, 64), thousands(f.WANBytes),
			units.FormatRatio(uint64(r.FileBytes), f.WANBytes), strconv.FormatFloat(f.Speedup, 'f', 1, 64)+"x",
			orDash(f.Congestion), window(f.WindowBytes), thousands(f.Retransmits), thousands(f.RetransmitsMarked))
	}
	fmt.Fprintf(b, "\nretransmissions on the WAN: %d, marked %d; first transmissions marked: %d\n", r.Retransmits, r.RetransmitsMarked, r.FirstMarked)
	if r.Marks != "on" {
		fmt.Fprintf(b, "marks: %s\n", r.Marks)
	}
	splice := r.Splice
	if splice == "on" {
		splice += " (forced by the demo's rule, since its client is known)"
	}
	fmt.Fprintf(b, "splice: %s\n", splice)
	if r.SHA256OK {
		fmt.Fprintf(b, "sha256: all three equal the file, %s...\n", r.SHA256[:16])
		return
	}
	for _, f := range r.Fetches {
		if !f.SHA256OK {
			fmt.Fprintf(b, "sha256: the %s fetch DIFFERS from the file\n", f.Name)
		}
	}
}

func window(bytes uint32) string {
	if bytes == 0 {
		return "auto"
	}
	return units.FormatSize(bytes)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// thousands writes a number with commas.
func thousands(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
