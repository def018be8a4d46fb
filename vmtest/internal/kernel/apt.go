// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// aptRoot is an apt of our own: with sources, lists and state in the cache, so that the machine's stay as they are. Of
// the machine's configuration it keeps proxies, credentials and the like.
type aptRoot struct {
	dir    string
	suites []string
	mirror mirror
}

// aptConfig is read after the machine's configuration. Hooks are cleared since they would work on the machine's lists;
// checks of signatures are as strict as apt has them. The sandbox user could not enter a cache below a home directory.
const aptConfig = `#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
Dir::Etc::sourcelist "%[1]s/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State "%[1]s/state";
Dir::State::lists "%[1]s/lists";
Dir::State::status "%[1]s/state/status";
Dir::Cache "%[1]s/cache";
Dir::Cache::archives "archives";
Dir::Cache::pkgcache "pkgcache.bin";
Dir::Cache::srcpkgcache "srcpkgcache.bin";
APT::Architecture "amd64";
APT::Architectures "amd64";
APT::Sandbox::User "root";
APT::Update::Error-Mode "any";
APT::Get::AllowUnauthenticated "false";
Acquire::AllowInsecureRepositories "false";
Acquire::GzipIndexes "true";
Acquire::Retries "3";
`

// openApt prepares the apt of some suites below the cache and holds it until release is called.
func openApt(ctx context.Context, cache string, suites []string, l log) (root *aptRoot, release func(), err error) {
	if !haveKeyring() {
		return nil, nil, fmt.Errorf("no %s to check signatures with; %s", keyring, keyringHint)
	}
	dir := filepath.Join(cache, "apt", suites[0])
	for _, d := range []string{"state", "lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, nil, err
		}
	}
	release, err = lockFile(ctx, dir+".lock", l)
	if err != nil {
		return nil, nil, err
	}
	root = &aptRoot{dir: dir, suites: suites, mirror: machineMirror(ctx)}
	if err := root.configure(); err != nil {
		release()
		return nil, nil, err
	}
	return root, release, nil
}

func (a *aptRoot) configure() error {
	var sources strings.Builder
	for _, suite := range a.suites {
		sources.WriteString(a.mirror.source(suite))
	}
	return errors.Join(
		os.WriteFile(filepath.Join(a.dir, "sources.list"), []byte(sources.String()), 0o644),
		os.WriteFile(filepath.Join(a.dir, "apt.conf"), fmt.Appendf(nil, aptConfig, a.dir), 0o644),
		os.WriteFile(filepath.Join(a.dir, "state", "status"), nil, 0o644)) // nothing is installed
}

// run runs one of apt's programs on this root.
func (a *aptRoot) run(ctx context.Context, dir, name string, args ...string) (string, error) {
	return program{dir: dir}.run(ctx, name, append([]string{"-q", "-c", filepath.Join(a.dir, "apt.conf")}, args...)...)
}

// update fetches the suites' current lists.
func (a *aptRoot) update(ctx context.Context, l log) error {
	what := "looking at " + strings.Join(a.suites, " and ")
	err := l.step(what, nil, func() error {
		_, err := a.run(ctx, "", "apt-get", "update")
		return err
	})
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case strings.Contains(err.Error(), "NO_PUBKEY") || strings.Contains(err.Error(), "not signed"):
		return fmt.Errorf("%s at %s: %w; %s", what, a.mirror.archive, err, keyringHint)
	default:
		return fmt.Errorf("%s: %w; check the network and the mirror %s that /etc/apt gives",
			what, err, a.mirror.archive)
	}
}

// names returns the names of all packages that begin so.
func (a *aptRoot) names(ctx context.Context, prefix string) ([]string, error) {
	out, err := a.run(ctx, "", "apt-cache", "pkgnames", prefix)
	return strings.Fields(out), err
}

// show returns the newest version of each package. Packages that do not exist are left out.
func (a *aptRoot) show(ctx context.Context, names ...string) ([]stanza, error) {
	if len(names) == 0 {
		return nil, nil
	}
	out, err := a.run(ctx, "", "apt-cache", append([]string{"show", "--no-all-versions"}, names...)...)
	if err != nil && strings.Contains(err.Error(), "No packages found") {
		return nil, nil
	}
	return parseStanzas(out), err
}

// download puts the packages' .deb files into dir, checked against the signed lists, and returns their paths.
func (a *aptRoot) download(ctx context.Context, dir string, packages []stanza, l log) ([]string, error) {
	var total int64
	var args []string
	for _, p := range packages {
		total += p.SizeBytes
		args = append(args, p.Package+"="+p.Version)
	}
	far := func() string { return fmt.Sprintf("%d of %d MB", dirBytes(dir)>>20, total>>20) }
	what := "downloading " + strings.Join(args, " ")
	err := l.step(what, far, func() error {
		_, err := a.run(ctx, dir, "apt-get", append([]string{"download"}, args...)...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s from %s: %w", what, a.mirror.archive, err)
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err == nil && len(debs) != len(packages) {
		err = fmt.Errorf("%s into %s: %d files instead of %d", what, dir, len(debs), len(packages))
	}
	return debs, err
}

// dirBytes is the size of what lies in a directory and below. It is only told as progress, so what vanishes meanwhile
// counts nothing.
func dirBytes(dir string) int64 {
	var sum int64
	_ = filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			sum += info.Size()
		}
		return nil
	})
	return sum
}
