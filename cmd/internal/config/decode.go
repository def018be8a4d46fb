// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// decoder walks the syntax tree itself rather than decoding into structs: every value keeps its place in the file, so
// that every message can name it, and all problems are found in one go.
type decoder struct {
	file       string
	problems   Problems
	warnings   Problems
	peers      []ast.Node // where the peers and the rules' dedup peers stand, for crossCheck
	rules      []ruleNodes
	peerCodecs []codecChoice
	autoAt     ast.Node // nil: there is no such section
	systems    []ast.Node
}

// ruleNodes are the places crossCheck refers to.
type ruleNodes struct {
	rule, remote, peer ast.Node
	codec              codecChoice
}

// fields maps each key of a mapping to what reads its value.
type fields map[string]func(ast.Node)

func (d *decoder) failf(n ast.Node, format string, args ...any) {
	d.problems = append(d.problems, d.problem(n, format, args...))
}

func (d *decoder) warnf(n ast.Node, format string, args ...any) {
	d.warnings = append(d.warnings, d.problem(n, format, args...))
}

func (d *decoder) problem(n ast.Node, format string, args ...any) Problem {
	p := Problem{File: d.file, Line: 1, Column: 1, Text: fmt.Sprintf(format, args...)}
	if n = start(n); n != nil {
		if t := n.GetToken(); t != nil && t.Position != nil {
			p.Line, p.Column = t.Position.Line, t.Position.Column
		}
	}
	return p
}

// start is where a node begins for a reader: a mapping written in lines at its first key, not at that key's colon.
func start(n ast.Node) ast.Node {
	switch v := n.(type) {
	case *ast.MappingNode:
		if !v.IsFlowStyle && len(v.Values) > 0 {
			return v.Values[0].Key
		}
	case *ast.MappingValueNode:
		return v.Key
	}
	return n
}

func (d *decoder) document(data []byte, c *Config) {
	if tooDeep(data) {
		d.failf(nil, "brackets are nested more than %d deep; no configuration needs that", maxDepth)
		return
	}
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		d.syntax(err)
		return
	}
	seen := false
	for _, doc := range file.Docs {
		if doc == nil || doc.Body == nil {
			continue
		}
		if seen {
			d.failf(doc.Body, "a second document; keep everything in one")
			return
		}
		seen = true
		d.top(doc.Body, c)
	}
}

// maxDepth bounds nesting, in which the parser's time grows with the square.
const maxDepth = 100

// tooDeep counts brackets, also those in texts: none has so many.
func tooDeep(data []byte) bool {
	depth := 0
	for _, b := range data {
		switch b {
		case '[', '{':
			depth++
		case ']', '}':
			depth = max(depth-1, 0)
		}
		if depth > maxDepth {
			return true
		}
	}
	return false
}

func (d *decoder) syntax(err error) {
	p := Problem{File: d.file, Line: 1, Column: 1, Text: "not valid YAML: " + err.Error()}
	var y yaml.Error
	if errors.As(err, &y) {
		p.Text = "not valid YAML: " + y.GetMessage()
		if t := y.GetToken(); t != nil && t.Position != nil {
			p.Line, p.Column = t.Position.Line, t.Position.Column
		}
	}
	d.problems = append(d.problems, p)
}

// mapping reads a mapping whose keys are all in fields; order is how they are listed in messages.
func (d *decoder) mapping(n ast.Node, what string, order []string, f fields) {
	m, ok := n.(ast.MapNode)
	if !ok {
		d.failf(n, "%s must be a mapping of keys to values, not %s", what, kind(n))
		return
	}
	seen := map[string]int{}
	for it := m.MapRange(); it.Next(); {
		key, place := keyOf(it.Key()), ast.Node(it.Key())
		read, known := f[key]
		line := place.GetToken().Position.Line
		switch {
		case !known:
			d.failf(place, "unknown key %q in %s; %s", key, what, suggest(key, order))
		case seen[key] > 0:
			d.failf(place, "key %q is given twice, first in line %d; remove one", key, seen[key])
		case it.Value() == nil || it.Value().Type() == ast.NullType:
			d.failf(place, "key %q has no value; give it one or remove it", key)
		default:
			read(it.Value())
		}
		if seen[key] == 0 {
			seen[key] = line
		}
	}
}

func keyOf(k ast.MapKeyNode) string {
	if s, ok := scalar(k); ok {
		return s
	}
	return k.String()
}

// list reads each element of a list.
func (d *decoder) list(n ast.Node, what string, each func(ast.Node)) {
	s, ok := n.(*ast.SequenceNode)
	if !ok {
		d.failf(n, "%s must be a list, not %s", what, kind(n))
		return
	}
	for _, v := range s.Values {
		if v == nil || v.Type() == ast.NullType {
			d.failf(n, "%s has an empty element; remove it", what)
			continue
		}
		each(v)
	}
}

// text reads a single value as written.
func (d *decoder) text(n ast.Node, what string, use func(string)) {
	s, ok := scalar(n)
	switch {
	case !ok:
		d.failf(n, "%s must be a single value, not %s", what, kind(n))
	case s == "":
		d.failf(n, "%s is empty; give a value or remove the key", what)
	default:
		use(s)
	}
}

// texts reads a list of single values.
func (d *decoder) texts(n ast.Node, what string, to *[]string) {
	d.list(n, what, func(v ast.Node) {
		d.text(v, "each of "+what, func(s string) { *to = append(*to, s) })
	})
}

// number reads an integer in base 10 or 0x.
func (d *decoder) number(n ast.Node, what string, low, high uint64, use func(uint64)) {
	d.text(n, what, func(s string) {
		v, err := strconv.ParseUint(s, 0, 64)
		if err != nil || v < low || v > high {
			d.failf(n, "%s %q must be a number from %d to %d", what, s, low, high)
			return
		}
		use(v)
	})
}

// word reads one of a few words.
func (d *decoder) word(n ast.Node, what string, to *string, words ...string) {
	d.text(n, what, func(s string) {
		for _, w := range words {
			if s == w {
				*to = w
				return
			}
		}
		d.failf(n, "%s %q is unknown; %s", what, s, suggest(s, words))
	})
}

// scalar gives a value as it stands in the file: `off` stays "off" and `0x10` stays "0x10".
func scalar(n ast.Node) (string, bool) {
	switch v := n.(type) {
	case *ast.StringNode:
		return v.Value, true
	case *ast.LiteralNode:
		return v.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	return "", false
}

func kind(n ast.Node) string {
	switch n.(type) {
	case ast.MapNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.AnchorNode, *ast.AliasNode:
		return "an anchor or alias (write the value out)"
	case *ast.TagNode:
		return "a tagged value (remove the tag)"
	}
	return "a single value"
}
