// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/trunkline/trunkline/cc/choice"
)

// The example that packages install is valid as it is, and with everything in it switched on.
func TestPackagedExample(t *testing.T) {
	const path = "../../../packaging/trunkline.yaml"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Parse(path, text); err != nil {
		t.Errorf("as it is: %v", err)
	}
	on := regexp.MustCompile(`(?m)^#(\S|  )`).ReplaceAllString(string(text), "$1")
	on = strings.ReplaceAll(on, `"ed25519:..."`, `"`+keyA+`"`)
	c, err := Parse(path, []byte(on))
	if err != nil {
		t.Fatalf("switched on: %v", err)
	}
	if len(c.Warnings) > 0 {
		t.Errorf("switched on, it has warnings: %v", c.Warnings)
	}
	if !reflect.DeepEqual(c.Auto, Auto{Candidates: choice.DefaultCandidates, Hold: DefaultHold}) {
		t.Errorf("the example calls %+v the defaults", c.Auto)
	}
	if len(c.Peers) != 1 || len(c.Rules) != 1 || c.Group != "adm" || !c.Listen.IsValid() {
		t.Errorf("not everything was switched on: %+v", c)
	}
}

// Every key is explained in docs/operations.md.
func TestKeysAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, keys := range [][]string{topKeys, peerKeys, ruleKeys, dedupKeys, historyKeys, autoKeys, reservationsKeys, ownerKeys, pathKeys, systemKeys} {
		for _, k := range keys {
			if !strings.Contains(string(text), "`"+k+"`") {
				t.Errorf("docs/operations.md does not mention the key `%s`", k)
			}
		}
	}
}
