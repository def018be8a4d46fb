// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"reflect"
	"testing"
)

func TestStanzasAreRead(t *testing.T) {
	got := parseStanzas(`Package: linux-image-6.1.0-57-amd64
Source: linux-signed-amd64 (6.1.192+3)
Version: 6.1.192-3
Depends: kmod, linux-base (>= 4.3~), initramfs-tools (>= 0.120+deb8u2) | linux-initramfs-tool
Description: Linux 6.1
 Depends: this line is text
Size: 70591024

Package: b
Pre-Depends: dpkg
Depends: python3:any
`)
	want := []stanza{
		{"linux-image-6.1.0-57-amd64", "6.1.192-3", []string{"kmod", "linux-base", "initramfs-tools"}, 70591024},
		{"b", "", []string{"dpkg", "python3"}, 0},
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v\nwant %+v", got, want)
	}
}

func TestVersionsCompareAsDebianDoes(t *testing.T) {
	ascending := []string{"6.1.9-1", "6.1.10~rc1-1", "6.1.10-1~bpo12+1", "6.1.10-1", "6.1.10-1+deb12u1", "6.1.10-2",
		"6.1.10-10", "6.12.95-1", "6.12.100-1", "7.0.0-1", "7.0.0a-1", "7.0.0+1-1", "1:1.0-1"}
	for i, a := range ascending {
		for j, b := range ascending {
			got := compareVersions(a, b)
			if (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("%s against %s: got %d", a, b, got)
			}
		}
	}
	if compareVersions("1.0-0", "1.0") != 0 || compareVersions("0:1.007", "1.7") != 0 {
		t.Error("equal versions that are written in two ways differ")
	}
}
