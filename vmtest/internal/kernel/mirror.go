// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"os"
	"regexp"
	"strings"
)

// Where Debian's packages come from on a machine whose own apt knows no mirror of Debian.
const (
	defaultArchive  = "http://deb.debian.org/debian"
	defaultSecurity = "http://deb.debian.org/debian-security"
)

// keyring signs all of Debian's suites. A machine that lacks it does not get a check less, but an error.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// keyringHint is the remedy where the keyring is missing or older than a suite's keys.
const keyringHint = "install or upgrade the package debian-archive-keyring"

// mirror holds the roots of Debian's archives.
type mirror struct{ archive, security string }

// machineMirror asks the machine's own apt for its mirror; proxies and credentials stay apt's business.
func machineMirror(ctx context.Context) mirror {
	// print-uris reads all forms of source lists, downloads nothing, and needs no lists to be there.
	out, err := program{}.run(ctx, "apt-get", "update", "--print-uris", "-o", "Debug::NoLocking=1")
	if err != nil {
		out = "" // a machine without sources is as good as one without a mirror
	}
	return parseMirror(out)
}

// releaseURI is a suite of Debian at the root of an archive whose path says that it is Debian's: third parties also name
// their suites after Debian's.
var releaseURI = regexp.MustCompile(`^'([^']*debian[^']*?)/dists/` +
	`((?:bookworm|trixie|forky|sid|oldstable|stable|testing|unstable)(?:-[a-z-]+)?(?:/updates)?)/InRelease'`)

func parseMirror(uris string) mirror {
	m := mirror{defaultArchive, defaultSecurity}
	archive, security := false, false
	for _, line := range strings.Split(uris, "\n") {
		found := releaseURI.FindStringSubmatch(line)
		if found == nil {
			continue
		}
		root, suite := found[1], found[2]
		switch {
		case strings.HasSuffix(suite, "-security"):
			if !security {
				m.security, security = root, true
			}
		case !archive:
			m.archive, archive = root, true
		}
	}
	return m
}

// source is a line of sources.list for a suite.
func (m mirror) source(suite string) string {
	root := m.archive
	if strings.HasSuffix(suite, "-security") {
		root = m.security
	}
	return "deb [arch=amd64 target=Packages lang=none signed-by=" + keyring + "] " + root + " " + suite + " main\n"
}

func haveKeyring() bool {
	_, err := os.Stat(keyring)
	return err == nil
}
