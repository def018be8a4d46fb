// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// changeLine is how the agent's log tells of another choice.
var changeLine = regexp.MustCompile(`another congestion control is chosen.* old=(\S+) new=(\S+) why=("(?:[^"\\]|\\.)*"|\S+)`)

// choicesSince gives the changes of choice that an agent's log tells of from a place on, in order, in a line for people.
func choicesSince(log string, from int64) (string, error) {
	text, err := os.ReadFile(log)
	if err != nil {
		return "", fmt.Errorf("reading the agent's log: %w", err)
	}
	var changes []string
	for _, m := range changeLine.FindAllStringSubmatch(string(text[min(from, int64(len(text))):]), -1) {
		changes = append(changes, fmt.Sprintf("%s to %s (%s)", m[1], m[2], strings.Trim(m[3], `"`)))
	}
	return strings.Join(changes, "; "), nil
}

// logSize is where a log ends now; one that is not there yet ends at its beginning.
func logSize(log string) int64 {
	info, err := os.Stat(log)
	if err != nil {
		return 0
	}
	return info.Size()
}
