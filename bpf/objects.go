// SPDX-License-Identifier: Apache-2.0

package bpf

import "github.com/cilium/ebpf"

// Layout returns the maps alone, none of them created yet.
func Layout() (*ebpf.CollectionSpec, error) { return loadLayout() }
