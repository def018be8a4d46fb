// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

// The hidden commands by which the executable is its own web server and client where nginx or curl is not installed.
const (
	ServeCommand = "demo-serve" // demo-serve --root DIR ADDRESS:PORT...
	FetchCommand = "demo-fetch" // demo-fetch URL FILE
)

// ServeMain is the command ServeCommand: it serves root by HTTP on each address until the context ends.
func ServeMain(ctx context.Context, root string, addresses []string) error {
	if len(addresses) == 0 {
		return errors.New("no address to serve on")
	}
	srv := &http.Server{Handler: http.FileServer(http.Dir(root)), ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, len(addresses))
	for _, a := range addresses {
		var lc net.ListenConfig
		lc.SetMultipathTCP(false) // MPTCP is never steered, and no common web server speaks it unasked
		ln, err := lc.Listen(ctx, "tcp", a)
		if err != nil {
			return errors.Join(fmt.Errorf("serving: %w", err), srv.Close())
		}
		go func() { ended <- srv.Serve(ln) }()
	}
	select {
	case err := <-ended:
		return errors.Join(fmt.Errorf("serving: %w", err), srv.Close())
	case <-ctx.Done():
		return srv.Close()
	}
}

// FetchMain is the command FetchCommand: it fetches a URL into a file, without regard to any proxy in the environment.
func FetchMain(ctx context.Context, url, path string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("fetching: %w", err)
	}
	res, err := (&http.Client{Transport: &http.Transport{DisableCompression: true}}).Do(req)
	if err != nil {
		return fmt.Errorf("fetching: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("fetching %s: the server says %s", url, res.Status)
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("fetching: %w", err)
	}
	_, err = io.Copy(f, res.Body)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("fetching %s: %w", url, err)
	}
	return nil
}
