// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trunkline/trunkline/internal/testkit"
)

func TestOwnServerAndClient(t *testing.T) {
	root := t.TempDir()
	data := bytes.Repeat([]byte("trunkline"), 1e5)
	if err := os.WriteFile(filepath.Join(root, fileName), data, 0o600); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String() // free a moment ago
	ln.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ServeMain(ctx, root, []string{address}) }()

	to := filepath.Join(t.TempDir(), "got")
	t.Setenv("http_proxy", "http://127.0.0.1:1") // must not matter
	fetch := func(name string) error { return FetchMain(t.Context(), "http://"+address+"/"+name, to) }
	for deadline := time.Now().Add(testkit.Wait(5 * time.Second)); fetch(fileName) != nil && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	if got, err := os.ReadFile(to); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes came of %d: %v", len(got), len(data), err)
	}
	if err := fetch("absent"); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("an absent file gave %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestServeNowhere(t *testing.T) {
	if ServeMain(t.Context(), t.TempDir(), nil) == nil {
		t.Error("no address is no error")
	}
	if ServeMain(t.Context(), t.TempDir(), []string{"192.0.2.1:1"}) == nil {
		t.Error("an address of another host is no error")
	}
}
