// SPDX-License-Identifier: Apache-2.0

// Command gen writes the C header and the documentation of the reasons from the table in package reason.
package main

import (
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/trunkline/trunkline/bpf/reason"
)

func main() {
	if err := os.WriteFile("../reasons.h", header(), 0o644); err != nil {
		log.Fatalf("writing the C header: %v", err)
	}
	if err := os.WriteFile("../../docs/reasons.md", document(), 0o644); err != nil {
		log.Fatalf("writing the documentation: %v", err)
	}
}

func header() []byte {
	var b strings.Builder
	b.WriteString("/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */\n")
	b.WriteString("/* Code generated from bpf/reason/reason.go; DO NOT EDIT. */\n#pragma once\n\nenum tl_reason {\n\tTL_NONE = 0,\n")
	for _, i := range reason.Table {
		name := strings.ToUpper(strings.ReplaceAll(i.Name, "-", "_"))
		fmt.Fprintf(&b, "\tTL_%s = %d,\n", name, i.Code)
	}
	fmt.Fprintf(&b, "\tTL_REASONS_MAX = 64,\n};\n")
	return []byte(b.String())
}

func document() []byte {
	var b strings.Builder
	b.WriteString("# Why a flow is not optimised\n\n")
	b.WriteString("Written from the table in `bpf/reason`. *Intended* reasons are the configuration or the design at work; the others want attention.\n\n")
	b.WriteString("| code | reason | intended | meaning | what to do |\n|---|---|---|---|---|\n")
	for _, i := range reason.Table {
		yes := "no"
		if i.Intended {
			yes = "yes"
		}
		fmt.Fprintf(&b, "| %d | `%s` | %s | %s | %s |\n", i.Code, i.Name, yes, i.Meaning, i.Action)
	}
	return []byte(b.String())
}
