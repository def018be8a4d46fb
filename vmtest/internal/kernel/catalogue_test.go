// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
)

// canned answers from entries as `apt-cache show` prints them.
type canned []stanza

func (c canned) names(_ context.Context, prefix string) ([]string, error) {
	var names []string
	for _, s := range c {
		if strings.HasPrefix(s.Package, prefix) {
			names = append(names, s.Package)
		}
	}
	return names, nil
}

func (c canned) show(_ context.Context, names ...string) ([]stanza, error) {
	var found []stanza
	for _, s := range c {
		if slices.Contains(names, s.Package) {
			found = append(found, s)
		}
	}
	return found, nil
}

func cannedIndex(t *testing.T, path string) canned {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return parseStanzas(string(text))
}

func TestKernelsResolveInEitherLayout(t *testing.T) {
	for _, c := range []struct{ suite, name, want string }{
		{"bookworm", "6.1", "6.1.0-57-amd64 6.1.192-3: linux-image-6.1.0-57-amd64"},
		{"bookworm", "6.12", ""},
		{"bookworm", "6", ""},
		{"trixie-backports", Newest, "7.3.4+deb13-amd64 7.3.4-1~bpo13+1: linux-image-7.3.4+deb13-amd64 " +
			"linux-base-7.3.4+deb13-amd64 linux-binary-7.3.4+deb13-amd64 linux-modules-7.3.4+deb13-amd64"},
		{"trixie-backports", "7.2", "7.2.12+deb13-amd64 7.2.12-1~bpo13+1: linux-image-7.2.12+deb13-amd64 " +
			"linux-base-7.2.12+deb13-amd64 linux-binary-7.2.12+deb13-amd64 linux-modules-7.2.12+deb13-amd64"},
		{"trixie-backports", "6.18", "6.18.15+deb13-amd64 6.18.15-1~bpo13+1: linux-image-6.18.15+deb13-amd64"},
	} {
		f, err := resolve(t.Context(), cannedIndex(t, "testdata/"+c.suite+".packages"), c.name)
		if err != nil {
			t.Errorf("%s from %s: %v", c.name, c.suite, err)
			continue
		}
		got := ""
		if f != nil {
			got = f.release + " " + f.version + ":"
			for _, p := range f.packages {
				got += " " + p.Package
			}
		}
		if got != c.want {
			t.Errorf("%s from %s:\n got %s\nwant %s", c.name, c.suite, got, c.want)
		}
	}
}

func TestLackingPartIsNamed(t *testing.T) {
	in := slices.DeleteFunc(cannedIndex(t, "testdata/trixie-backports.packages"), func(s stanza) bool {
		return s.Package == "linux-modules-7.3.4+deb13-amd64"
	})
	f, err := resolve(t.Context(), in, Newest)
	if err != nil || len(f.packages) != 3 || !slices.Equal(f.lacking, []string{"linux-modules-7.3.4+deb13-amd64"}) {
		t.Fatalf("got %+v, %v", f, err)
	}
}

func TestUnknownNamesAreRefusedWithTheKnownOnes(t *testing.T) {
	for _, name := range []string{"", "6", "6.1.5", "bookworm", "6.1-rt", ".."} {
		_, err := Get(t.Context(), name, t.TempDir(), nil)
		if err == nil || !strings.Contains(err.Error(), "6.1-nobtf, 6.1, 6.12, newest") {
			t.Errorf("%q: got %v", name, err)
		}
	}
}

func TestMirrorIsTheMachines(t *testing.T) {
	for _, c := range []struct {
		uris string
		want mirror
	}{
		{"", mirror{defaultArchive, defaultSecurity}},
		{"'http://archive.ubuntu.com/ubuntu/dists/noble/InRelease' x 0", mirror{defaultArchive, defaultSecurity}},
		{"'https://apt.example.com/dists/bookworm/InRelease' third party 0\n" +
			"'http://ftp.de.debian.org/debian/dists/bookworm-updates/InRelease' x 0\n" +
			"'http://deb.debian.org/debian/dists/bookworm/InRelease' x 0\n" +
			"'http://mirror.local/debian-security/dists/stable-security/InRelease' x 0",
			mirror{"http://ftp.de.debian.org/debian", "http://mirror.local/debian-security"}},
	} {
		if got := parseMirror(c.uris); got != c.want {
			t.Errorf("%s:\n got %v\nwant %v", c.uris, got, c.want)
		}
	}
	m := mirror{"http://a/debian", "http://s/debian-security"}
	if got := m.source("bookworm-security"); !strings.Contains(got, "http://s/debian-security bookworm-security main") ||
		!strings.Contains(got, "signed-by="+keyring) {
		t.Errorf("got %s", got)
	}
}
