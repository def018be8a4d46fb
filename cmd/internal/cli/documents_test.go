// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// knows fails unless the command line is one that trunkline takes: its command exists, and so do its flags.
func knows(t *testing.T, line string) {
	t.Helper()
	cmd, args, err := newRoot(System()).Find(strings.Fields(line))
	if err != nil {
		t.Errorf("trunkline %s: %v", line, err)
		return
	}
	var flags []string
	for _, a := range args {
		if strings.HasPrefix(a, "--") {
			flags = append(flags, a)
		}
	}
	for _, f := range flags {
		name, _, _ := strings.Cut(strings.TrimPrefix(f, "--"), "=")
		if name != "help" && cmd.Flags().Lookup(name) == nil {
			t.Errorf("trunkline %s: %s has no flag --%s", line, cmd.Name(), name)
		}
	}
}

// The unit calls what there is.
func TestUnit(t *testing.T) {
	text, err := os.ReadFile("../../../packaging/trunkline.service")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^Exec\w+=/usr/bin/trunkline (.*)$`).FindAllStringSubmatch(string(text), -1)
	if len(found) != 4 {
		t.Errorf("%d commands in the unit, want check, agent, reload and cleanup", len(found))
	}
	for _, f := range found {
		knows(t, f[1])
	}
}

// So do the documents, and the examples in the commands' help.
func TestDocuments(t *testing.T) {
	texts := map[string]string{}
	for _, path := range []string{"../../../docs/operations.md", "../../../docs/reservations.md", "../../../README.md"} {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		texts[path] = string(text)
	}
	for _, c := range newRoot(System()).Commands() {
		texts["the help of "+c.Name()] = c.Example
		for _, sub := range c.Commands() {
			texts["the help of "+c.Name()+" "+sub.Name()] = sub.Example
		}
	}
	call := regexp.MustCompile(`(?m)(?:^ +(?:sudo |\$ )?|` + "`" + `|&& )trunkline ((?:agent|bdp|cc|check|estimate|status|flows|explain|history|peers|reload|drain|cleanup|keygen|reserve|demo|bench|version)\b[^` + "`" + `\n#&;]*)`)
	for where, text := range texts {
		for _, f := range call.FindAllStringSubmatch(text, -1) {
			t.Run(where, func(t *testing.T) { knows(t, f[1]) })
		}
	}
}
