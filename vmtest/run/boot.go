// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"github.com/trunkline/trunkline/vmtest/internal/kernel"
	"github.com/trunkline/trunkline/vmtest/internal/machine"
	"github.com/trunkline/trunkline/vmtest/internal/plan"
)

// modules are what tests want of a kernel beyond what it loads by itself when asked for.
var modules = []string{
	"veth", "dummy", "tun", "ifb", "tls",
	"sch_netem", "sch_tbf", "sch_htb", "sch_prio", "sch_red", "sch_gred", "sch_fq", "sch_fq_codel", "sch_codel", "sch_ingress",
	"cls_bpf", "cls_u32", "cls_matchall", "cls_flower", "act_mirred", "act_skbedit", "inet_diag", "tcp_diag",
	"tcp_bbr", "tcp_dctcp", "tcp_bic", "tcp_westwood", "tcp_htcp", "tcp_hybla", "tcp_vegas", "tcp_lp", "tcp_veno", "tcp_yeah",
	"tcp_illinois", "tcp_highspeed",
}

// boot runs steps on a kernel as the stage has it.
func boot(ctx context.Context, k *kernel.Kernel, s stage, steps []plan.Step, b *build, dir string, kvm bool, progress io.Writer) (*plan.Report, error) {
	loaded, missing, err := k.Modules(ctx, modules)
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		fmt.Fprintf(progress, "kernel %s does not have: %v\n", k.Name, missing)
	}
	p := plan.Plan{Hybrid: s.hybrid, Modules: loaded, Steps: steps}
	if k.ModulesRoot != "" && k.Release != "" {
		tree := filepath.Join("/lib/modules", k.Release) // what the kernel loads by itself comes from there
		p.Links = append(p.Links, plan.Link{From: tree, To: filepath.Join(k.ModulesRoot, tree)})
	}
	spec := machine.Spec{Kernel: k, Share: dir, Guest: b.guest, Plan: p, Exact: s.exact, KVM: kvm && !s.exact, Append: s.append, Limit: bootLimit}
	stop := follow(ctx, k.Name, dir, steps, progress)
	defer stop()
	if s.vng {
		spec.Plan.Modules = nil // virtme-ng's guest has its udev do that
		return machine.VNG(ctx, spec)
	}
	return machine.QEMU(ctx, spec)
}
