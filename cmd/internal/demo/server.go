// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/trunkline/trunkline/cmd/internal/labagent"
)

// fileName is what the file is called on the web server.
const fileName = "file"

func (w *world) serverLog() string { return filepath.Join(w.dir, "server.log") }

// startServer serves the file at site B: by nginx if it is installed, since a server that everybody knows shows more, or
// else by this executable.
func (w *world) startServer(ctx context.Context) error {
	root := filepath.Join(w.dir, "www")
	if err := os.Mkdir(root, 0o700); err != nil {
		return fmt.Errorf("making a directory: %w", err)
	}
	if err := os.Symlink(w.file.path, filepath.Join(root, fileName)); err != nil {
		return fmt.Errorf("serving the file: %w", err)
	}
	name, args := w.opts.Binary, []string{ServeCommand, "--root", root}
	for _, p := range []int{directPort, dedupPort} {
		args = append(args, fmt.Sprintf("%s:%d", w.b.Addr4, p))
	}
	if nginx := lookNginx(); nginx != "" {
		conf := filepath.Join(w.dir, "nginx.conf")
		if err := os.WriteFile(conf, []byte(w.nginxConfig(root)), 0o600); err != nil {
			return fmt.Errorf("configuring the web server: %w", err)
		}
		name, args = nginx, []string{"-p", w.dir, "-e", w.serverLog(), "-c", conf}
	}
	var err error
	if w.server, err = labagent.StartLogged(w.b.Site, w.serverLog(), name, args...); err != nil {
		return err
	}
	return w.waitServer(ctx)
}

// lookNginx also looks where a user's PATH does not reach.
func lookNginx() string {
	for _, name := range []string{"nginx", "/usr/sbin/nginx"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// nginxConfig keeps every file that nginx writes in the demo's directory. Its worker stays root, for the directory is
// closed to others.
func (w *world) nginxConfig(root string) string {
	at := func(name string) string { return filepath.Join(w.dir, "nginx-"+name) }
	return fmt.Sprintf(`daemon off;
user root;
worker_processes 1;
pid %s;
events { worker_connections 256; }
http {
    access_log off;
    sendfile on;
    default_type application/octet-stream;
    client_body_temp_path %s;
    proxy_temp_path %s;
    fastcgi_temp_path %s;
    uwsgi_temp_path %s;
    scgi_temp_path %s;
    server {
        listen %s:%d;
        listen %s:%d;
        root %s;
    }
}
`, at("pid"), at("body"), at("proxy"), at("fastcgi"), at("uwsgi"), at("scgi"),
		w.b.Addr4, directPort, w.b.Addr4, dedupPort, root)
}

// waitServer asks from the server's own site, so that nothing of it crosses the WAN.
func (w *world) waitServer(ctx context.Context) error {
	ended := make(chan struct{})
	go func() {
		_ = w.server.Wait()
		close(ended)
	}()
	address := netip.AddrPortFrom(w.b.Addr4, dedupPort).String()
	for deadline := time.Now().Add(readyTimeout); ; {
		c, err := w.b.Dial(ctx, "tcp", address)
		if err == nil {
			return c.Close()
		}
		select {
		case <-ended:
			return fmt.Errorf("the web server ended at once%s", labagent.Tail(w.serverLog()))
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollEvery):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the web server does not answer: %w%s", err, labagent.Tail(w.serverLog()))
		}
	}
}
