// SPDX-License-Identifier: Apache-2.0

package ledger

import "github.com/trunkline/trunkline/cc"

// StructOps is a congestion control that stays registered without a process: Target is its name in the kernel, New the lock
// file by which its users know of each other.
const StructOps Kind = "struct-ops"

func undoStructOps(e Entry) (Outcome, string) {
	switch o, err := cc.Remove(e.Target, e.New); {
	case err != nil:
		return Failed, err.Error()
	case o == cc.InUse:
		return Left, "another agent uses it, and takes it away at its end"
	case o == cc.Absent:
		return Already, ""
	}
	return Restored, "flows that have it keep it to their end"
}
