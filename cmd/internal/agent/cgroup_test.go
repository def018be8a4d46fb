// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"testing"

	"github.com/trunkline/trunkline/cmd/internal/config"
)

func TestOutside(t *testing.T) {
	peers := []config.Peer{{Name: "far"}}
	for _, c := range []struct {
		cgroup, self string
		peers        []config.Peer
		want         bool
	}{
		{"/", "/", peers, false},
		{"/", "/system.slice/trunkline.service", peers, false},
		{"/user.slice", "/user.slice", peers, false},
		{"/user.slice", "/user.slice/x", peers, false},
		{"/user.slice", "/user.slice2", peers, true},
		{"/user.slice", "/system.slice/trunkline.service", peers, true},
		{"/user.slice", "/", peers, true},
		{"/user.slice", "/", nil, false},
		{"/user.slice", "", peers, false},
	} {
		got := outside(&config.Config{Cgroup: c.cgroup, Peers: c.peers}, c.self)
		if (got != "") != c.want || c.want && !strings.Contains(got, ";") {
			t.Errorf("%+v: %q", c, got)
		}
	}
	if got := ownCgroup(); got != "" && got[0] != '/' {
		t.Errorf("own cgroup %q", got)
	}
}
