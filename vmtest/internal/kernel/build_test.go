// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"slices"
	"strings"
	"testing"
)

func TestLostOptionsAreFound(t *testing.T) {
	wanted := "# comment\nCONFIG_A=y\nCONFIG_B=y\nCONFIG_C=n\nCONFIG_D=n\nCONFIG_E=\"-x\"\nCONFIG_F=8\nCONFIG_G=n\n"
	result := "CONFIG_A=y\n# CONFIG_B is not set\n# CONFIG_C is not set\nCONFIG_D=y\nCONFIG_E=\"-x\"\nCONFIG_F=64\n"
	want := []string{"CONFIG_B=y", "CONFIG_D=n", "CONFIG_F=8"}
	if got := lostOptions(wanted, result); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// The configuration is checked against the source when it is built; that it still makes the kernel this is about, here.
func TestConfigurationIsTheOneOfItsName(t *testing.T) {
	lines := strings.Split(nobtfConfig, "\n")
	for _, want := range []string{"CONFIG_DEBUG_INFO_BTF=n", "CONFIG_MPTCP=n", "CONFIG_LOCALVERSION=\"" + builtSuffix + "\"",
		"CONFIG_IKCONFIG_PROC=y", "CONFIG_CGROUP_BPF=y", "CONFIG_NET_9P_VIRTIO=y"} {
		if !slices.Contains(lines, want) {
			t.Errorf("nobtf.config lacks %s", want)
		}
	}
	for _, line := range lines {
		if strings.HasSuffix(line, "=m") {
			t.Errorf("nobtf.config has %s: nothing would load it", line)
		}
	}
}
