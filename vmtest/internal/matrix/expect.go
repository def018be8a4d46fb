// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Expect is what vmtest/expect.yaml says.
type Expect struct {
	kernels map[string][]string // features that must work, by kernel
	stages  map[string][]string // features that a stage takes away, by stage
	order   []string            // stages as they stand in the file
}

// newest is the key that stands for a kernel that is newer than all listed ones.
const newest = "newest"

// LoadExpect reads vmtest/expect.yaml strictly. Its error names every problem with line and remedy.
func LoadExpect(path string) (*Expect, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading what is expected of kernels: %w", err)
	}
	return parseExpect(path, data)
}

// How a kernel is judged.
const (
	Listed   = "listed"     // by its own name
	AsNewest = "newest"     // as the newest one
	Unlisted = "not listed" // by the nearest listed version at or below its own, for the product's features alone
)

// judgement is what is expected of one kernel.
type judgement struct {
	how   string   // Listed, AsNewest, Unlisted
	by    string   // the key it is judged by; "": nothing is expected of a kernel older than all listed ones
	names []string // features that must work
}

// of says what is expected of a kernel. Only a name that is a version and nothing else can be the newest: "bzImage" and
// "host" are somebody's own, built as they please.
func (e *Expect) of(kernel, release string) judgement {
	if names, ok := e.kernels[kernel]; ok && kernel != newest {
		return judgement{Listed, kernel, names}
	}
	versions := e.versions()
	own, plain := versionOf(kernel)
	if names, ok := e.kernels[newest]; ok && plain && (len(versions) == 0 || own.compare(parsed(versions[len(versions)-1])) > 0) {
		return judgement{AsNewest, newest, names}
	}
	j := judgement{how: Unlisted}
	own = versionIn(kernel, release)
	for _, key := range versions {
		if parsed(key).compare(own) > 0 {
			break
		}
		j.by, j.names = key, nil
		for _, name := range e.kernels[key] {
			if f, _ := featureOf(name); f.product {
				j.names = append(j.names, name)
			}
		}
	}
	return j
}

// versions are the keys that are versions and nothing else, ascending.
func (e *Expect) versions() []string {
	var list []string
	for key := range e.kernels {
		if _, plain := versionOf(key); plain {
			list = append(list, key)
		}
	}
	slices.SortFunc(list, func(a, b string) int { return parsed(a).compare(parsed(b)) })
	return list
}

func parsed(key string) version {
	v, _ := versionOf(key)
	return v
}

func (j judgement) requires(feature string) bool { return slices.Contains(j.names, feature) }

// strict says whether a feature that works and is not expected is a failure.
func (j judgement) strict() bool { return j.how != Unlisted }

// takesAway says whether a stage lacks a feature on purpose.
func (e *Expect) takesAway(stage, feature string) bool {
	return slices.Contains(e.stages[stage], feature)
}

// compareStages orders stages as they stand in the file, others after them by name.
func (e *Expect) compareStages(a, b string) int {
	at := func(name string) int {
		if i := slices.Index(e.order, name); i >= 0 {
			return i
		}
		return len(e.order)
	}
	return cmp.Or(cmp.Compare(at(a), at(b)), strings.Compare(a, b))
}
