// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/cc/insides"
)

// Source says where an algorithm comes from.
type Source string

// The sources.
const (
	Ours    Source = "tl"      // trunkline brings it along
	Module  Source = "module"  // the kernel's, as a module
	BuiltIn Source = "builtin" // the kernel's, or another program's
)

// Entry is one algorithm as it is on this machine.
type Entry struct {
	Name      string   `json:"name"`
	Source    Source   `json:"source"`
	Reacts    Reaction `json:"reacts"` // "": not known
	Needs     string   `json:"needs"`  // of the kernel
	Loaded    bool     `json:"loaded"` // the kernel offers it now
	How       string   `json:"how,omitempty"`
	Reference string   `json:"reference,omitempty"` // the paper or RFC
	Flows     *int     `json:"flows"`               // that have it, in this network namespace; null: not known
}

// kernels are the kernel's own, and what they react to.
var kernels = map[string]Reaction{
	"bbr": "rate, delay", "bic": Loss, "cdg": Delay, "cubic": Loss, "dctcp": "ECN", "highspeed": Loss, "htcp": LossAndDelay,
	"hybla": Loss, "illinois": LossAndDelay, "lp": LossAndDelay, "nv": Delay, "reno": Loss, "scalable": Loss,
	"vegas": LossAndDelay, "veno": LossAndDelay, "westwood": Loss, "yeah": LossAndDelay,
}

// List returns every algorithm that flows on this machine could have: trunkline's own in the order of the catalogue, then the
// kernel's by name. Flows are counted for root alone.
func List() ([]Entry, error) {
	offered, err := Available()
	if err != nil {
		return nil, err
	}
	_, probeErr := Probe()
	flows := countFlows()
	var list []Entry
	for _, a := range catalogue {
		e := Entry{Name: a.Name, Source: Ours, Reacts: a.Reacts, Needs: "struct-ops", Reference: a.Source}
		e.Loaded = slices.Contains(offered, a.Name)
		switch {
		case e.Loaded:
		case errors.Is(probeErr, unix.EPERM):
			e.How = "when a rule names it, if the kernel has struct-ops; ask as root"
		case probeErr != nil:
			e.How = probeErr.Error()
		default:
			e.How = "when a rule names it"
		}
		list = append(list, withFlows(e, flows))
	}
	for _, name := range kernelNames(offered) {
		e := Entry{Name: name, Source: BuiltIn, Reacts: kernels[name], Loaded: slices.Contains(offered, name)}
		if kernels[name] != "" && name != "reno" {
			e.Needs = "CONFIG_TCP_CONG_" + strings.ToUpper(name)
		}
		if isModule(name) || !e.Loaded {
			e.Source = Module
		}
		if !e.Loaded {
			e.How = "modprobe tcp_" + name
		}
		list = append(list, withFlows(e, flows))
	}
	return list, nil
}

func withFlows(e Entry, flows map[string]int) Entry {
	if flows != nil {
		n := flows[e.Name]
		e.Flows = &n
	}
	return e
}

// kernelNames returns what the kernel offers beside ours, and what it has modules of.
func kernelNames(offered []string) []string {
	names := modules(release())
	for _, name := range offered {
		if !strings.HasPrefix(name, ours) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func release() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// modules returns the congestion controls that are there as modules of a kernel.
func modules(release string) []string {
	f, err := os.Open(filepath.Join("/lib/modules", release, "modules.dep"))
	if err != nil {
		return nil // no modules, or not on this machine
	}
	defer f.Close()
	var names []string
	for s := bufio.NewScanner(f); s.Scan(); {
		file, _, _ := strings.Cut(s.Text(), ":")
		name, _, _ := strings.Cut(filepath.Base(file), ".ko")
		if name, ok := strings.CutPrefix(name, "tcp_"); ok && kernels[name] != "" {
			names = append(names, name)
		}
	}
	return names
}

// isModule says whether a congestion control that is loaded came as a module.
func isModule(name string) bool {
	_, err := os.Stat(filepath.Join("/sys/module", "tcp_"+name, "initstate"))
	return err == nil
}

// countFlows counts connections by algorithm; nil: not permitted, or this kernel cannot tell.
func countFlows() map[string]int {
	r, err := insides.Open(false)
	if err != nil {
		return nil
	}
	defer r.Close()
	sockets, err := r.Read()
	if err != nil {
		return nil
	}
	flows := map[string]int{}
	for _, s := range sockets {
		flows[s.Name]++
	}
	return flows
}
