// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"cmp"
	"regexp"
	"strconv"
)

// version is major and minor of a kernel; the zero value is older than all.
type version struct{ major, minor int }

func (v version) compare(o version) int {
	return cmp.Or(cmp.Compare(v.major, o.major), cmp.Compare(v.minor, o.minor))
}

var versionStart = regexp.MustCompile(`^(\d+)\.(\d+)`)

// versionOf reads the version that a text begins with, and says whether the text is nothing else.
func versionOf(s string) (v version, plain bool) {
	m := versionStart.FindStringSubmatch(s)
	if m == nil {
		return version{}, false
	}
	v.major, _ = strconv.Atoi(m[1]) // a number too large is no kernel: 0 or the largest, either is fine
	v.minor, _ = strconv.Atoi(m[2])
	return v, m[0] == s
}

// versionIn is the version of a kernel by its name in the matrix, or by its release where the name has none.
func versionIn(kernel, release string) version {
	if v, _ := versionOf(kernel); v != (version{}) {
		return v
	}
	v, _ := versionOf(release)
	return v
}
