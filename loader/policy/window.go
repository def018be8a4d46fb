// SPDX-License-Identifier: Apache-2.0

package policy

import "github.com/trunkline/trunkline/bpf"

// WindowMode says who decides on the windows of a rule's flows.
type WindowMode = bpf.WindowMode

// The window modes. A rule with WindowBytes and no mode has WindowFixed.
const (
	WindowKernel   = bpf.WindowKernel   // the kernel, within the host's maxima
	WindowFixed    = bpf.WindowFixed    // the rule's WindowBytes
	WindowAuto     = bpf.WindowAuto     // the kernel; maxima and initial windows do not hold it back
	WindowReserved = bpf.WindowReserved // rate x RTT of the reservation in force for the other end; else as WindowAuto
)

// The bounds of a rule's weight: its share against that of other rules on a reserved path.
const (
	DefaultWeight = 1
	MaxWeight     = 100
)

// Mode returns the rule's window mode.
func (r Rule) Mode() WindowMode {
	if r.Window == WindowKernel && r.WindowBytes > 0 {
		return WindowFixed
	}
	return r.Window
}

// ShareWeight returns the rule's weight, 1 to MaxWeight.
func (r Rule) ShareWeight() uint8 { return max(r.Weight, DefaultWeight) }
