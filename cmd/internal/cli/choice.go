// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/trunkline/trunkline/cmd/internal/control"
	"github.com/trunkline/trunkline/cmd/internal/units"
)

// autoMark stands behind the congestion control of a flow that follows the choice of its path.
const autoMark = "*"

// since writes how long ago something was.
func since(t time.Time) string {
	return units.FormatDuration(max(time.Since(t), 0).Round(100 * time.Millisecond))
}

// choiceText says what is chosen, since when, what was before, what losses are, and why.
func choiceText(c control.Choice) string {
	verb := ""
	if c.DryRun {
		verb = "would be "
	}
	text := fmt.Sprintf("%s%s for %s", verb, c.Chosen, since(c.Since))
	if c.Previous != "" {
		text += ", before " + c.Previous
	}
	return fmt.Sprintf("%s; losses: %s; %s", text, c.Class, c.Why)
}

// printChoices explains the mark: one line for each path that the flows shown are on.
func printChoices(w io.Writer, flows []control.Flow) {
	type path struct {
		prefix netip.Prefix
		peer   string
	}
	seen := map[path]bool{}
	t := table{header: []string{autoMark + " AUTO", "PEER", "CHOSEN FOR THE PATH, AND WHY"}, limit: []int{25, 12}}
	marked := false
	for _, f := range flows {
		marked = marked || f.Auto
		if f.Choice == nil || seen[path{f.Choice.Prefix, f.Choice.Peer}] {
			continue
		}
		seen[path{f.Choice.Prefix, f.Choice.Peer}] = true
		t.add(f.Choice.Prefix.String(), orDash(f.Choice.Peer), choiceText(*f.Choice))
	}
	if !marked {
		return
	}
	fmt.Fprintln(w)
	if len(t.rows) == 0 {
		fmt.Fprintln(w, autoMark+" auto: nothing is chosen for these paths yet")
		return
	}
	t.print(w)
}

// autoLine is status' line.
func autoLine(a control.Auto) string {
	state := "on"
	if a.DryRun {
		state = "dry run, nothing is set"
	}
	text := fmt.Sprintf("congestion: auto is %s: %s, %s; from %s", state, count(a.Paths, "path"), count(int(a.Changes), "change"), candidateNames(a.Candidates))
	if a.Explore {
		text += "; explores"
	}
	return text
}

// candidateNames lists the candidates, those that cannot be had in brackets.
func candidateNames(all []control.Candidate) string {
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = c.Name
		if !c.Usable {
			names[i] = "(" + c.Name + ")"
		}
	}
	return strings.Join(names, " ")
}

// printAuto says what auto means for a connection.
func printAuto(w io.Writer, e *control.AutoExplanation) {
	fmt.Fprintln(w)
	t := table{header: []string{"AUTO", ""}}
	add := func(name, format string, args ...any) { t.add(name, fmt.Sprintf(format, args...)) }
	if e.DryRun {
		add("dry run", "flows keep the kernel's default; what follows only tells what would be chosen")
	}
	if e.Exempt != "" {
		add("path", "none: %s; its congestion control is left alone", e.Exempt)
	} else {
		add("path", "%s", e.Path)
		add("new connections", "%s", newText(e))
	}
	for _, c := range e.Choices {
		name := "chosen"
		if c.Peer != "" {
			name = "chosen for legs to " + c.Peer
		}
		add(name, "%s", choiceText(c))
		add("", "%s: loss %.2g%%, at most %s lately, round trip at least %s; %s within the last hour, seen %s ago", c.Prefix,
			100*c.LossRate, units.FormatRate(float64(c.RateBps)*8), micros(c.MinRTT), count(c.Changes, "change"), since(c.Updated))
	}
	add("unknown paths", "%s", orText(e.Prior, "the kernel's default: there is no candidate"))
	add("candidates", "%s", candidateNames(e.Candidates))
	for _, c := range e.Candidates {
		if !c.Usable {
			add("", "%s is left out: %s; %s", c.Name, c.Why, c.Remedy)
		}
	}
	add("holds for", "%s at least%s", units.FormatDuration(time.Duration(e.HoldSeconds*float64(time.Second))), exploreText(e.Explore))
	if !e.Asked {
		add("", "from the file alone: an agent knows of paths, and of what the kernel has")
	}
	t.print(w)
}

func newText(e *control.AutoExplanation) string {
	switch {
	case e.New == "":
		return "the kernel's default"
	case len(e.Choices) == 0 || e.Choices[0].Peer != "":
		return e.New + ": nothing is known of the path yet"
	}
	return e.New
}

func exploreText(on bool) string {
	if on {
		return "; what was not tried on a path may be tried"
	}
	return "; nothing is tried out"
}

func orText(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
