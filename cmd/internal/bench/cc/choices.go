// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"context"
	"fmt"
	"strings"

	"github.com/trunkline/trunkline/cmd/internal/control"
)

// choices asks the agent what it has changed for the path since it started, for this run, in a line for people.
func (w *world) choices(ctx context.Context) (string, error) {
	paths, err := w.agent.Control().Paths(ctx)
	if err != nil {
		return "", fmt.Errorf("asking the agent for what it chose: %w", err)
	}
	return choicesText(paths), nil
}

// choicesText tells of the changes of all paths that have a choice: of the bench there is one.
func choicesText(paths []control.Path) string {
	var texts []string
	for _, p := range paths {
		if p.Choice == nil {
			continue
		}
		for _, ch := range p.Choice.History {
			what := ch.Old + " to " + ch.New
			if ch.Old == ch.New {
				what = ch.New + " anew"
			}
			texts = append(texts, fmt.Sprintf("%s (%s)", what, ch.Why))
		}
	}
	return strings.Join(texts, "; ")
}
