// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Modules returns the files of the named modules and of all they need, in the order to load them in, decompressed and
// without debugging information. What is built in counts as there and has no file; missing names what the kernel lacks.
func (k *Kernel) Modules(ctx context.Context, names []string) (paths, missing []string, err error) {
	if k.ModulesRoot == "" {
		return nil, nil, nil
	}
	dir := filepath.Join(k.ModulesRoot, "lib", "modules", k.Release)
	list, err := readModuleList(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("modules of %s: %w", k.Name, err)
	}
	files, missing := list.closure(names)
	prepared := k.prepared
	if prepared == "" {
		prepared = filepath.Join(CacheDir(), "own", k.Release)
	}
	for _, file := range files {
		p, err := prepare(ctx, filepath.Join(dir, file), prepared)
		if err != nil {
			return nil, nil, fmt.Errorf("module %s of %s: %w", file, k.Name, err)
		}
		paths = append(paths, p)
	}
	return paths, missing, nil
}

// moduleList is what depmod and the kernel's build know of a kernel's modules. Names have underscores throughout.
type moduleList struct {
	file    map[string]string   // name to path below lib/modules/R
	needs   map[string][]string // name to names
	softPre map[string][]string // what should be loaded before; names or aliases
	soft    map[string][]string // and after
	aliases map[string][]string
	builtin map[string]bool
}

func readModuleList(dir string) (*moduleList, error) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return "" // older builds lack one or the other
		}
		return string(text)
	}
	deps, err := os.ReadFile(filepath.Join(dir, "modules.dep"))
	if err != nil {
		return nil, fmt.Errorf("%w; make it with `depmod -b ROOT %s`", err, filepath.Base(dir))
	}
	l := parseModuleList(string(deps), read("modules.builtin"), read("modules.softdep"), read("modules.alias"))
	// What can no longer be a module, as ipv6 since 7.x, is in no list of modules; but it still describes itself.
	for _, entry := range strings.Split(read("modules.builtin.modinfo"), "\x00") {
		if name, _, found := strings.Cut(entry, "."); found {
			l.builtin[moduleName(name)] = true
		}
	}
	return l, nil
}

func parseModuleList(deps, builtin, softdeps, aliases string) *moduleList {
	l := &moduleList{map[string]string{}, map[string][]string{}, map[string][]string{}, map[string][]string{},
		map[string][]string{}, map[string]bool{}}
	for _, line := range strings.Split(deps, "\n") { // kernel/fs/9p/9p.ko.xz: kernel/net/9p/9pnet.ko.xz ...
		file, needs, found := strings.Cut(line, ":")
		if !found {
			continue
		}
		l.file[moduleName(file)] = file
		for _, need := range strings.Fields(needs) {
			l.needs[moduleName(file)] = append(l.needs[moduleName(file)], moduleName(need))
		}
	}
	for _, file := range strings.Fields(builtin) {
		l.builtin[moduleName(file)] = true
	}
	for _, line := range strings.Split(softdeps, "\n") { // softdep NAME pre: A B post: C
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "softdep" {
			continue
		}
		name, into := moduleName(words[1]), l.softPre
		for _, w := range words[2:] {
			switch w {
			case "pre:":
				into = l.softPre
			case "post:":
				into = l.soft
			default:
				into[name] = append(into[name], w)
			}
		}
	}
	for _, line := range strings.Split(aliases, "\n") { // alias NAME-OR-PATTERN MODULE
		words := strings.Fields(line)
		if len(words) == 3 && words[0] == "alias" && !strings.ContainsAny(words[1], "*?[") {
			alias := moduleName(words[1])
			l.aliases[alias] = append(l.aliases[alias], moduleName(words[2]))
		}
	}
	return l
}

// moduleName is the name that a kernel knows a module's file by.
func moduleName(file string) string {
	name, _, _ := strings.Cut(path.Base(file), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}

// closure returns the files of the modules and of what they need, each after all that it needs itself.
func (l *moduleList) closure(names []string) (files, missing []string) {
	done := map[string]bool{}
	var add func(name string) bool
	softly := func(names []string) {
		for _, n := range names {
			add(moduleName(n)) // a kernel without it has another way, or the module will say so itself
		}
	}
	add = func(name string) bool {
		if done[name] || l.builtin[name] {
			return true
		}
		file, found := l.file[name]
		if !found {
			targets := l.aliases[name]
			for _, target := range targets {
				found = (target != name && add(target)) || found
			}
			return found
		}
		done[name] = true // before what it needs: soft needs may form rings
		softly(l.softPre[name])
		for _, need := range l.needs[name] {
			add(need)
		}
		files = append(files, file)
		softly(l.soft[name])
		return true
	}
	for _, name := range names {
		if !add(moduleName(name)) {
			missing = append(missing, name)
		}
	}
	return files, missing
}
