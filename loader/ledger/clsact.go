// SPDX-License-Identifier: Apache-2.0

package ledger

import "github.com/trunkline/trunkline/loader/internal/clsact"

// undoClsact takes a filter or qdisc away from an interface of this network namespace, if every part of what is written down
// is found there.
func undoClsact(e Entry) (Outcome, string) {
	switch {
	case e.Kind == ClsactFilter && e.Filter != nil:
		return outcomeOf(e.Filter.Remove())
	case e.Kind == ClsactQdisc && e.Place != nil:
		return outcomeOf(e.Place.RemoveQdisc())
	}
	return Failed, "the entry does not say what was put where"
}

func outcomeOf(r clsact.Removed, detail string, err error) (Outcome, string) {
	switch {
	case err != nil:
		return Failed, err.Error()
	case r == clsact.Done:
		return Restored, detail
	case r == clsact.Absent:
		return Already, detail
	}
	return Left, detail
}
