// SPDX-License-Identifier: Apache-2.0

// Package algorithm holds the congestion controls in C, one file each, and the Go bindings that bpf2go writes from them.
// The catalogue of package cc says what each is.
package algorithm

//go:generate sh generate.sh
