// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"errors"
	"fmt"
)

// Why a request is refused, in a word.
type Why string

// The words.
const (
	Malformed    Why = "malformed"    // it makes no sense as it stands
	Expired      Why = "expired"      // what it is about is over
	Unauthorised Why = "unauthorised" // whoever asks may not
	OverQuota    Why = "over-quota"   // the owner has as much as it may have
	Overlapping  Why = "overlapping"  // the path has no room at that time
	Unknown      Why = "unknown"      // there is no such reservation
	Full         Why = "full"         // the book has no room
)

// Refusal is why a request was not granted, and what to do.
type Refusal struct {
	Why  Why
	Text string
}

// Error gives the text.
func (r *Refusal) Error() string { return r.Text }

func refuse(w Why, format string, args ...any) *Refusal {
	return &Refusal{w, fmt.Sprintf(format, args...)}
}

// WhyOf tells a refusal from other errors: "" for those.
func WhyOf(err error) Why {
	var r *Refusal
	if errors.As(err, &r) {
		return r.Why
	}
	return ""
}
