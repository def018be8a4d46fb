// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"testing"
)

func TestTurns(t *testing.T) {
	all := newTurns()
	ctx, cancel := context.WithCancel(t.Context())
	var held []*turn
	for range cap(all) {
		held = append(held, &turn{turns: all, ctx: ctx})
		if err := held[len(held)-1].take(); err != nil {
			t.Fatal(err)
		}
	}
	next := &turn{turns: all, ctx: ctx}
	taken := make(chan error)
	go func() { taken <- next.take() }()
	held[0].giveBack()
	if err := <-taken; err != nil {
		t.Fatalf("a turn is free: %v", err)
	}
	late := &turn{turns: all, ctx: ctx}
	cancel()
	if err := late.take(); !errors.Is(err, context.Canceled) {
		t.Fatalf("no turn is free and the handshake is given up: %v", err)
	}
	late.giveBack() // has none to give
	for _, h := range append(held[1:], next) {
		h.giveBack()
		h.giveBack()
	}
	if len(all) != 0 {
		t.Errorf("%d turns are still taken", len(all))
	}
}
