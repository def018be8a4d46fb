// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"testing"

	"github.com/trunkline/trunkline/cmd/internal/control"
)

func TestChoicesText(t *testing.T) {
	paths := []control.Path{{}, {Choice: &control.Choice{History: []control.Change{
		{Old: "tl_illinois", New: "tl_illinois", Why: "the path became longer"},
		{Old: "tl_illinois", New: "bbr", Why: "7 of the last 9 losses came without a queue"},
	}}}}
	want := "tl_illinois anew (the path became longer); tl_illinois to bbr (7 of the last 9 losses came without a queue)"
	if got := choicesText(paths); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := choicesText(nil); got != "" {
		t.Errorf("without paths: %q", got)
	}
}
