// SPDX-License-Identifier: Apache-2.0

package window

// The modes by name.
const (
	modeKernel   = "kernel"
	modeSysctl   = "sysctl"
	modeInitcwnd = "initcwnd"
	modeBDP      = "bdp"
	modeAuto     = "auto"
	modeReserved = "reserved"
)

// mode is who sees to windows.
type mode struct {
	name     string
	profile  bool // the six lines of sysctl are in force
	route    bool // the route has initial windows of a BDP
	buffers  bool // programs set their buffers to a BDP
	agents   bool // an agent runs at both ends
	reserved bool // and has a reservation of the path
}

// modes in the order of the table.
var modes = []mode{
	{name: modeKernel},
	{name: modeSysctl, profile: true},
	{name: modeInitcwnd, profile: true, route: true},
	{name: modeBDP, buffers: true},
	{name: modeAuto, agents: true},
	{name: modeReserved, agents: true, reserved: true},
}

func names() (all []string) {
	for _, m := range modes {
		all = append(all, m.name)
	}
	return all
}

// room is whether host-wide maxima must let large buffers be: agents in a network namespace of their own cannot raise them.
func (m *mode) room() bool { return m.profile || m.buffers || m.agents }
