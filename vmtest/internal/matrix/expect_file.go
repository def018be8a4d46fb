// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// expectReader walks the syntax tree, so that every message can name a line, and a kernel 6.10 does not become the number 6.1.
type expectReader struct {
	path     string
	problems []error
}

func parseExpect(path string, data []byte) (*Expect, error) {
	e := &Expect{kernels: map[string][]string{}, stages: map[string][]string{}}
	r := &expectReader{path: path}
	file, err := parser.ParseBytes(data, 0)
	var syntax yaml.Error
	switch {
	case errors.As(err, &syntax):
		line := 1
		if t := syntax.GetToken(); t != nil && t.Position != nil {
			line = t.Position.Line
		}
		return nil, fmt.Errorf("%s:%d: not valid YAML: %s", path, line, syntax.GetMessage())
	case err != nil:
		return nil, fmt.Errorf("%s: not valid YAML: %w", path, err)
	case len(file.Docs) != 1 || file.Docs[0].Body == nil:
		return nil, fmt.Errorf("%s:1: it must be one document with the key `kernels`", path)
	}
	r.mapping(file.Docs[0].Body, "the file", func(key ast.Node, name string, value ast.Node) {
		switch name {
		case "kernels":
			r.mapping(value, "kernels", func(key ast.Node, name string, value ast.Node) {
				if _, plain := versionOf(name); !plain && name != newest && !versionStart.MatchString(name) {
					r.failf(key, "%q is no kernel; write a version (6.12), a version with a variant (6.1-nobtf), or newest", name)
				}
				e.kernels[name] = r.features(value, name)
			})
		case "stages":
			r.mapping(value, "stages", func(_ ast.Node, name string, value ast.Node) {
				e.order = append(e.order, name)
				e.stages[name] = r.features(value, name)
			})
		default:
			r.failf(key, "unknown key %q; there are kernels and stages", name)
		}
	})
	if len(r.problems) == 0 && len(e.kernels) == 0 {
		r.problems = append(r.problems, fmt.Errorf("%s:1: no kernel is listed; add `kernels:` with the features that must work on each", path))
	}
	return e, errors.Join(r.problems...)
}

func (r *expectReader) failf(n ast.Node, format string, args ...any) {
	line := 1
	if t := n.GetToken(); t != nil && t.Position != nil {
		line = t.Position.Line
	}
	r.problems = append(r.problems, fmt.Errorf("%s:%d: %s", r.path, line, fmt.Sprintf(format, args...)))
}

// mapping calls f for each key, by the key's text as it is written.
func (r *expectReader) mapping(n ast.Node, what string, f func(key ast.Node, name string, value ast.Node)) {
	m, ok := n.(ast.MapNode)
	if !ok {
		r.failf(n, "%s must be a mapping, one key a line", what)
		return
	}
	lines := map[string]int{}
	for it := m.MapRange(); it.Next(); {
		key, name := ast.Node(it.Key()), it.Key().GetToken().Value
		if line, twice := lines[name]; twice {
			r.failf(key, "%s is given twice, first in line %d; remove one", name, line)
			continue
		}
		lines[name] = key.GetToken().Position.Line
		f(key, name, it.Value())
	}
}

// features reads a list of features.
func (r *expectReader) features(n ast.Node, of string) []string {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		r.failf(n, "the value of %s must be a list of features, such as [rules, telemetry]; [] for none", of)
		return nil
	}
	names := []string{}
	for _, value := range list.Values {
		name := value.GetToken().Value
		switch _, known := featureOf(name); {
		case !known:
			r.failf(value, "no feature is called %q; there are %s (vmtest/internal/matrix/features.go)", name, strings.Join(featureNames(), ", "))
		case slices.Contains(names, name):
			r.failf(value, "%s is given twice for %s; remove one", name, of)
		default:
			names = append(names, name)
		}
	}
	return names
}
