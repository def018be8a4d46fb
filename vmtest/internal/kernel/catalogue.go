// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A place is a set of Debian suites that is looked through together.
type place []string

var (
	bookworm          = place{"bookworm", "bookworm-security"}
	bookwormBackports = place{"bookworm-backports"}
	trixie            = place{"trixie", "trixie-security"}
	trixieBackports   = place{"trixie-backports"}
)

// places returns where to look for a kernel, the first that has it wins. Versions are not written down anywhere: whatever
// a suite's newest of that name is, is taken.
func places(name string) []place {
	switch name {
	case "6.1":
		return []place{bookworm}
	case "6.12":
		return []place{bookwormBackports, bookworm, trixie} // security updates of bookworm have one, too
	case Newest:
		return []place{trixieBackports}
	default:
		return []place{trixieBackports, trixie, bookwormBackports, bookworm}
	}
}

// plainName is a name that Debian may have a kernel for.
var plainName = regexp.MustCompile(`^[0-9]+\.[0-9]+$`)

func checkName(name string) error {
	if name == Newest || name == NoBTF || plainName.MatchString(name) {
		return nil
	}
	return fmt.Errorf("%q names no kernel; known are %s, any other major.minor that Debian has, and the path (with a slash) "+
		"of a bzImage", name, strings.Join(Default(), ", "))
}

// imagePackage is a kernel for ordinary machines: no flavour, no metapackage, no debugging symbols.
var imagePackage = regexp.MustCompile(`^linux-image-([0-9]+\.[0-9]+\.[0-9]+[^-]*(?:-[0-9]+)?-amd64)$`)

func releaseOf(image string) string {
	found := imagePackage.FindStringSubmatch(image)
	if found == nil {
		return ""
	}
	return found[1]
}

// majorMinor returns "6.1" of "6.1.0-57-amd64".
func majorMinor(release string) string {
	parts := strings.SplitN(release, ".", 3)
	if len(parts) < 2 {
		return release
	}
	return parts[0] + "." + parts[1]
}

// candidates returns the image packages among names that a kernel of this name can come from.
func candidates(name string, names []string) []string {
	var images []string
	for _, n := range names {
		release := releaseOf(n)
		if release != "" && (name == Newest || majorMinor(release) == name) {
			images = append(images, n)
		}
	}
	return images
}

func newestOf(packages []stanza) stanza {
	var best stanza
	for _, p := range packages {
		if best.Package == "" || compareVersions(p.Version, best.Version) > 0 {
			best = p
		}
	}
	return best
}

// A find is a kernel in a suite.
type find struct {
	release  string
	version  string
	packages []stanza // the image and all that it is split into
	lacking  []string // what it needs of the same release and the suite does not have: of old kernels, parts are cleaned up
}

// index answers what a place's packages are.
type index interface {
	names(ctx context.Context, prefix string) ([]string, error)
	show(ctx context.Context, names ...string) ([]stanza, error)
}

// resolve finds the newest kernel of a name; nil if there is none. Which packages hold its parts is told by what its image
// package needs of the same release, so one package and any split of it are found alike.
func resolve(ctx context.Context, in index, name string) (*find, error) {
	all, err := in.names(ctx, "linux-image-")
	if err != nil {
		return nil, err
	}
	images, err := in.show(ctx, candidates(name, all)...)
	if err != nil {
		return nil, err
	}
	image := newestOf(images)
	if image.Package == "" {
		return nil, nil
	}
	f := &find{release: releaseOf(image.Package), version: image.Version, packages: []stanza{image}}
	seen := map[string]bool{image.Package: true}
	for next := f.packages; len(next) > 0; {
		var wanted []string
		for _, p := range next {
			for _, need := range p.Depends {
				if strings.HasSuffix(need, "-"+f.release) && !seen[need] {
					seen[need] = true
					wanted = append(wanted, need)
				}
			}
		}
		if next, err = in.show(ctx, wanted...); err != nil {
			return nil, err
		}
		f.packages = append(f.packages, next...)
		for _, w := range wanted {
			if !slices.ContainsFunc(next, func(s stanza) bool { return s.Package == w }) {
				f.lacking = append(f.lacking, w)
			}
		}
	}
	return f, nil
}
