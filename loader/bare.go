// SPDX-License-Identifier: Apache-2.0

package loader

import "github.com/trunkline/trunkline/bpf"

// BareFlows returns the live flows, the oldest first, without what algorithms keep of them, which takes longer to read.
func (l *Loader) BareFlows() ([]Flow, error) {
	return l.flows(func(bpf.Flow) bool { return true })
}
