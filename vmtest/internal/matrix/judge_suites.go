// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"fmt"
	"slices"
	"strings"
)

// suite gathers the tests of one package over the stages of a kernel.
type suite struct {
	cell     Cell
	outcomes map[string]string // of each test: the worst but for skips, which any other outcome replaces
}

// suites judges the tests, one cell a package. A test that ran in several stages counts once: as failed if it failed
// anywhere, as passed if it passed somewhere, else as skipped.
func (j *judge) suites() []Cell {
	byName := map[string]*suite{}
	for _, stage := range j.result.Stages {
		for _, t := range stage.Tests {
			name := suiteName(t.Package)
			if byName[name] == nil {
				byName[name] = &suite{cell: Cell{Row: name, State: OK}, outcomes: map[string]string{}}
			}
			byName[name].add(j, stage, t)
		}
	}
	cells := []Cell{}
	for _, s := range byName {
		for _, outcome := range s.outcomes {
			switch outcome {
			case Pass:
				s.cell.Passed++
			case Skip:
				s.cell.Skipped++
			default:
				s.cell.Failed++
			}
		}
		cells = append(cells, s.cell)
	}
	slices.SortFunc(cells, func(a, b Cell) int { return strings.Compare(a.Row, b.Row) })
	return cells
}

func (s *suite) add(j *judge, stage Stage, t Test) {
	outcome := t.Outcome
	switch outcome {
	case Pass:
	case Skip:
		if why, remedy := j.skip(stage.Name, t); why != "" {
			outcome = Fail
			s.cell.fail(Reason{Text: fmt.Sprintf("%s in %s %s", t.Name, stage.Name, why), Remedy: remedy})
		}
	default: // also an outcome that nobody knows
		outcome = Fail
		s.cell.fail(Reason{Text: fmt.Sprintf("%s in %s failed after %.1f s", t.Name, stage.Name, t.Seconds), Output: t.Output, Log: stage.Log})
	}
	if before, again := s.outcomes[t.Name]; !again || outcome == Fail || before == Skip {
		s.outcomes[t.Name] = outcome
	}
}
