// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/trunkline/trunkline/cc"
)

func TestAlgorithmsTable(t *testing.T) {
	two := 2
	var out bytes.Buffer
	printAlgorithms(&out, []cc.Entry{
		{Name: "tl_illinois", Source: cc.Ours, Reacts: cc.LossAndDelay, Needs: "struct-ops", Loaded: true, Flows: &two},
		{Name: "illinois", Source: cc.Module, Reacts: cc.LossAndDelay, Needs: "CONFIG_TCP_CONG_ILLINOIS", How: "modprobe tcp_illinois", Flows: new(int)},
		{Name: "mine", Source: cc.BuiltIn, Loaded: true},
	})
	want := strings.Join([]string{
		"NAME         SOURCE   REACTS TO    FLOWS  NEEDS                     LOADED",
		"tl_illinois  tl       loss, delay  2      struct-ops                yes",
		"illinois     module   loss, delay  0      CONFIG_TCP_CONG_ILLINOIS  no: modprobe tcp_illinois",
		"mine         builtin  -            -      -                         yes",
		"",
	}, "\n")
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

func TestAlgorithmsOfThisMachine(t *testing.T) {
	var out bytes.Buffer
	if code := Run(context.Background(), Env{Stdout: &out, Stderr: &out}, []string{"cc", "--json"}); code != 0 {
		t.Fatalf("exit %d: %s", code, out.String())
	}
	var got struct{ Algorithms []cc.Entry }
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || len(got.Algorithms) <= len(cc.Catalogue()) {
		t.Errorf("%v: %s", err, out.String())
	}
}
