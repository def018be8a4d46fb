// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/trunkline/trunkline/cmd/internal/bench"
	"github.com/trunkline/trunkline/cmd/internal/units"
)

// shown lines of a table are printed; JSON has more.
const shown = 20

// Print writes tables and the conclusion.
func (r *Result) Print(w io.Writer) {
	fmt.Fprintf(w, "%s, a history of %s at each end\n", r.Codec, units.FormatSize(r.HistoryBytes))
	tables := []bench.Table{r.fileTable(), r.portTable(), r.flowTable()}
	for i := range tables {
		if len(tables[i].Rows) > 0 {
			fmt.Fprintln(w)
			tables[i].Write(w)
		}
	}
	for i := range r.Captures {
		for _, note := range r.Captures[i].notes() {
			bench.WriteText(w, note)
		}
	}
	fmt.Fprintln(w)
	bench.WriteText(w, r.Conclusion)
}

// columns of every table.
var columns = []string{"BYTES", "WIRE", "RATIO", "WITHIN", "EARLIER", "COMPRESSED"}

func (s Sums) cells() []string {
	return []string{units.FormatSize(s.RawBytes), units.FormatSize(s.WireBytes), units.FormatRatio(s.RawBytes, s.WireBytes), percent(float64(s.WithinBytes), s.RawBytes),
		percent(float64(s.EarlierBytes), s.RawBytes), percent(float64(s.CompressedBytes), s.RawBytes)}
}

func percent(part float64, whole uint64) string {
	if whole == 0 {
		return "-"
	}
	// Not "-0": what frames cost of what does not compress is far below one in a thousand.
	v := math.Round(1000*part/float64(whole)) / 10
	return strconv.FormatFloat(v+0, 'f', 1, 64) + " %"
}

const whatColumnsMean = "WITHIN and EARLIER are saved by references: to the same file or flow, and to earlier ones; COMPRESSED by compression, less what " +
	"references and frames cost."

func (r *Result) fileTable() bench.Table {
	t := bench.Table{Title: "Files, the largest first", Header: append([]string{"FILE"}, append(columns, "")...), Words: 1}
	files := largest(append([]File{}, r.Files...), shown, func(f File) uint64 { return f.RawBytes })
	if r.FileCount <= shown {
		t.Title, files = "Files, in the order in which they were sent", r.Files
	}
	for _, f := range files {
		t.Add(append(append([]string{shortPath(f.Path)}, f.cells()...), f.Reason)...)
	}
	if r.FileCount > 1 && r.FlowCount == 0 {
		t.Add(append(append([]string{"total of " + plural(r.FileCount, "file")}, r.Total.cells()...), "")...)
	}
	t.Notes = []string{whatColumnsMean}
	if r.Empty > 0 {
		t.Notes = append(t.Notes, plural(r.Empty, "empty file")+" left out.")
	}
	return t
}

// shortPath leaves the end of a long path.
func shortPath(path string) string {
	const most = 28
	if r := []rune(path); len(r) > most {
		return ".." + string(r[len(r)-most+2:])
	}
	return path
}

func (r *Result) portTable() bench.Table {
	t := bench.Table{Title: "TCP connections by the server's port, both directions", Words: 1, Header: append([]string{"PORT", "FLOWS"}, append(columns, "")...)}
	for i, p := range r.Ports {
		if i == shown {
			t.Notes = append(t.Notes, fmt.Sprintf("and %s; --json has all", plural(len(r.Ports)-shown, "further port")))
			break
		}
		t.Add(append(append([]string{strconv.Itoa(int(p.Port)), strconv.Itoa(p.Flows)}, p.cells()...), tell(p.Protocol))...)
	}
	if len(r.Ports) > 0 {
		t.Add(append(append([]string{"total", strconv.Itoa(r.FlowCount)}, r.Total.cells()...), "")...)
		t.Notes = append(t.Notes, whatColumnsMean)
	}
	return t
}

// tell says of a protocol what it means here.
func tell(protocol string) string {
	if protocol == "" {
		return ""
	}
	return protocol + ": encrypted"
}

func (r *Result) flowTable() bench.Table {
	t := bench.Table{Title: "Connections, the largest first", Header: []string{"CLIENT", "SERVER", "BYTES", "WIRE", "RATIO", ""}, Words: 2}
	for i, f := range r.Flows {
		if i == shown/2 {
			t.Notes = append(t.Notes, fmt.Sprintf("and %s; --json has more", plural(r.FlowCount-shown/2, "further connection")))
			break
		}
		why := tell(f.Protocol)
		if why == "" {
			why = f.Reason
		}
		t.Add(f.Client, f.Server, units.FormatSize(f.RawBytes), units.FormatSize(f.WireBytes), units.FormatRatio(f.RawBytes, f.WireBytes), why)
	}
	return t
}

// notes say what of a capture could not be used.
func (c *Capture) notes() (notes []string) {
	add := func(n uint64, format string, args ...any) {
		if n > 0 {
			notes = append(notes, c.Path+": "+fmt.Sprintf(format, args...))
		}
	}
	add(c.Gaps, "%s missing in %s: packets that the capture lost, or cut short. What is there counts.", units.FormatSize(c.GapBytes), plural(int(c.Gaps), "place"))
	add(c.CutPackets, "%s cut short by the capture; capture with tcpdump -s 0", plural(int(c.CutPackets), "packet"))
	add(c.Fragments, "%s of IP left out", plural(int(c.Fragments), "fragment"))
	add(c.Unestablished, "%s older than the capture; the one with the lower port counts as the server", plural(int(c.Unestablished), "connection"))
	if c.Truncated != "" {
		add(1, "%s; the %s before that count", c.Truncated, plural(int(c.Packets), "packet"))
	}
	return notes
}

// conclude says it in a sentence or two.
func (r *Result) conclude() string {
	t := r.Total
	if t.RawBytes == 0 {
		return ""
	}
	var b strings.Builder
	saved := 1 - float64(t.WireBytes)/float64(t.RawBytes)
	fmt.Fprintf(&b, "Of %s, %s would cross the WAN (%s)", units.FormatSize(t.RawBytes), units.FormatSize(t.WireBytes), units.FormatRatio(t.RawBytes, t.WireBytes))
	repeats := t.WithinBytes + t.EarlierBytes
	switch {
	case saved < 0.05:
		b.WriteString(": nothing to gain from deduplication.")
	case repeats > t.RawBytes/20:
		fmt.Fprintf(&b, ": %s are repeats, and compression saves another %s.", percent(float64(repeats), t.RawBytes), percent(float64(t.CompressedBytes), t.RawBytes))
	default:
		fmt.Fprintf(&b, ": compression saves %s, there are hardly any repeats.", percent(float64(t.CompressedBytes), t.RawBytes))
	}
	if r.EncryptedBytes > 0 {
		fmt.Fprintf(&b, " %s are encrypted (TLS, SSH), and gain nothing unless the application sends them unencrypted: between the agents everything is "+
			"encrypted anyway.", percent(float64(r.EncryptedBytes), t.RawBytes))
	}
	return b.String()
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
