// SPDX-License-Identifier: Apache-2.0

package vmtest

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/trunkline/trunkline/internal/testkit"
)

// A kernel without BTF: what needs types is off, each with its reason and what to do; what does not is on.
func TestWithoutBTF(t *testing.T) {
	testkit.NeedRoot(t)
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err == nil {
		testkit.NeedFeature(t, "no-btf", errors.New("it has BTF"))
	}
	w := newSites(t, setup{})
	out, err := w.lab.A.Output(w.lab.A.Command(t.Context(), binary(t), "check", "--json", w.a.path("trunkline.yaml")))
	if err != nil {
		t.Fatalf("check: %v: %s", err, out)
	}
	w.wantBTFFinding(t, out)

	w.a.start()
	w.b.start()
	w.waitPeers()
	for _, name := range []string{"splice", "struct-ops"} {
		f := w.a.feature(t, name)
		if f.On || !strings.Contains(f.Detail, "BTF") || !strings.Contains(f.Remedy, "CONFIG_DEBUG_INFO_BTF") {
			t.Errorf("%+v", f)
		}
		if log := w.a.log.String(); !strings.Contains(log, "feature="+name) {
			t.Errorf("the agent's log does not say that %s is off", name)
		}
	}
	for _, name := range []string{"steering-ipv4", "rules", "telemetry"} {
		if f := w.a.feature(t, name); !f.On {
			t.Errorf("%+v", f)
		}
	}
	serve(t, w.lab.B, w.lab.B.Addr4)
	w.wantExactTransfers(t, w.lab.B.Addr4)
}

// wantBTFFinding says that check warns of the kernel, without calling it an error.
func (w *world) wantBTFFinding(t *testing.T, out []byte) {
	t.Helper()
	var report struct {
		OK       bool `json:"ok"`
		Findings []struct {
			Level   string `json:"level"`
			Subject string `json:"subject"`
			Text    string `json:"text"`
		} `json:"findings"`
	}
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	for _, f := range report.Findings {
		if f.Subject == "btf" {
			if f.Level != "warning" || !strings.Contains(f.Text, "CONFIG_DEBUG_INFO_BTF") {
				t.Errorf("%+v", f)
			}
			return
		}
	}
	t.Errorf("check finds nothing to say of BTF: %s", out)
}
