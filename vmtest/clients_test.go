// SPDX-License-Identifier: Apache-2.0

package vmtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/vmtest/lab"
)

// daemon runs a server at a site until the test ends, and waits until it accepts at the address.
func daemon(t *testing.T, site *lab.Site, cmd *exec.Cmd, ready ...netip.AddrPort) {
	t.Helper()
	out := &syncBuffer{}
	cmd.Stdout, cmd.Stderr = out, out
	proc, err := site.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() { _ = proc.Wait(); close(exited) }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		select {
		case <-exited:
		case <-time.After(testkit.Wait(5 * time.Second)):
			_ = cmd.Process.Kill()
			<-exited
		}
		if t.Failed() {
			t.Logf("%s: %s", cmd.Path, tail(out.String(), 20))
		}
	})
	for _, addr := range ready {
		waitFor(t, 15*time.Second, cmd.Path+" accepting at "+addr.String(), func() bool {
			return site.Do(func() error {
				c, err := net.DialTimeout("tcp", addr.String(), testkit.Wait(time.Second))
				if err == nil {
					c.Close()
				}
				return err
			}) == nil
		})
	}
}

// output runs a client program at a site and returns its standard output.
func output(t *testing.T, site *lab.Site, name string, args ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Wait(2*time.Minute))
	defer cancel()
	cmd := site.Command(ctx, testkit.NeedProgram(t, name), args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := site.Run(cmd); err != nil {
		t.Fatalf("%s %v: %v\n%s%s", name, args, err, out.Bytes(), errs.Bytes())
	}
	return out.Bytes()
}

func (w *world) readyB(port uint16) []netip.AddrPort {
	var all []netip.AddrPort
	for _, a := range w.lab.B.Addrs() {
		all = append(all, netip.AddrPortFrom(a, port))
	}
	return all
}

// steered runs f for both families and fails the test unless each run sent flows through the engine.
func (w *world) steered(t *testing.T, f func(t *testing.T, host string, addr netip.Addr)) {
	w.families(t, func(t *testing.T, addr netip.Addr) {
		before := w.a.peer().FlowsOpened
		host := addr.String()
		if addr.Is6() {
			host = "[" + host + "]"
		}
		f(t, host, addr)
		if w.a.peer().FlowsOpened == before {
			t.Error("no flow went through the engine")
		}
	})
}

// writeStream writes the stream of a seed to a file and returns its SHA-256.
func writeStream(t *testing.T, path string, seed uint64, n int64) string {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := io.Copy(f, streamOf(seed, n)); err != nil {
		t.Fatal(err)
	}
	return streamSum(seed, n)
}

func fileSum(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		t.Fatal(err)
	}
	return sumHex(h)
}

func TestCurlAndNginx(t *testing.T) {
	w := newWorld(t, setup{})
	root := publicDir(t)
	want := writeStream(t, filepath.Join(root, "file"), 7, testkit.Size(30_000_000, 2_000_000))
	serveFiles(t, w, root)
	w.steered(t, func(t *testing.T, host string, _ netip.Addr) {
		for range 3 {
			got := filepath.Join(t.TempDir(), "got")
			output(t, w.lab.A, "curl", "-sSf", "--noproxy", "*", "-o", got, "http://"+host+"/file")
			if sum := fileSum(t, got); sum != want {
				t.Errorf("curl got sha256 %s, want %s", sum, want)
			}
		}
		// One connection for many requests, ranges, and a missing file.
		part := output(t, w.lab.A, "curl", "-sSf", "--noproxy", "*", "-r", "1000-1999", "http://"+host+"/file", "http://"+host+"/file")
		if len(part) != 2000 {
			t.Errorf("two ranges of 1000 bytes gave %d", len(part))
		}
		code := output(t, w.lab.A, "curl", "-sS", "--noproxy", "*", "-o", "/dev/null", "-w", "%{http_code}", "http://"+host+"/none")
		if string(code) != "404" {
			t.Errorf("a missing file gave %s", code)
		}
	})
}

// serveFiles runs nginx at site B for the files of a directory that everybody may read.
func serveFiles(t *testing.T, w *world, root string) {
	t.Helper()
	listens := ""
	for _, at := range w.readyB(80) {
		listens += fmt.Sprintf("listen %s; ", at)
	}
	conf := filepath.Join(root, "nginx.conf")
	text := fmt.Sprintf(`user root; daemon off; master_process off; pid %[1]s/nginx.pid; error_log %[1]s/error.log;
events {}
http { access_log off; client_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s; scgi_temp_path %[1]s;
  sendfile on;
  server { %[2]s root %[1]s; } }`, root, listens)
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	daemon(t, w.lab.B, w.lab.B.Command(context.Background(), testkit.NeedProgram(t, "nginx"), "-c", conf, "-e", root+"/error.log"), w.readyB(80)...)
}

func TestIperf3(t *testing.T) {
	w := newWorld(t, setup{})
	daemon(t, w.lab.B, w.lab.B.Command(context.Background(), testkit.NeedProgram(t, "iperf3"), "-s", "-p", "5201"))
	// It takes the first connection for a client that begins a test, so whether it listens is not tried.
	waitFor(t, 15*time.Second, "iperf3 listening", func() bool {
		return len(output(t, w.lab.B, "ss", "-Hltn", "sport = :5201")) > 0
	})
	w.steered(t, func(t *testing.T, _ string, addr netip.Addr) {
		for _, direction := range [][]string{nil, {"-R"}, {"--bidir"}} {
			args := append([]string{"-c", addr.String(), "-p", "5201", "-t", "2", "-P", "2", "--json"}, direction...)
			var got struct {
				Error string `json:"error"`
				End   struct {
					Received struct {
						Bytes float64 `json:"bytes"`
					} `json:"sum_received"`
				} `json:"end"`
			}
			if err := json.Unmarshal(output(t, w.lab.A, "iperf3", args...), &got); err != nil || got.Error != "" {
				t.Fatalf("iperf3 %v: %v %s", direction, err, got.Error)
			}
			// What is on its way when the sender stops is not counted: tens of megabytes here, with all its windows open.
			if got.End.Received.Bytes < float64(testkit.Size(10e6, 500e3)) {
				t.Errorf("iperf3 %v: %.0f bytes received", direction, got.End.Received.Bytes)
			}
		}
	})
}

func TestRsyncDaemon(t *testing.T) {
	w := newWorld(t, setup{})
	root := publicDir(t)
	src := filepath.Join(root, "src")
	if err := os.MkdirAll(filepath.Join(src, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	sums := map[string]string{}
	for i := range 40 {
		name := fmt.Sprintf("sub/f%02d", i)
		sums[name] = writeStream(t, filepath.Join(src, name), uint64(i), int64(i)*testkit.Size(20_000, 5_000))
	}
	sums["big"] = writeStream(t, filepath.Join(src, "big"), 99, testkit.Size(15_000_000, 2_000_000))
	conf := filepath.Join(root, "rsyncd.conf")
	if err := os.WriteFile(conf, []byte(fmt.Sprintf("uid = root\ngid = root\nuse chroot = no\n[files]\n\tpath = %s\n\tread only = no\n", src)), 0o644); err != nil {
		t.Fatal(err)
	}
	daemon(t, w.lab.B, w.lab.B.Command(context.Background(), testkit.NeedProgram(t, "rsync"), "--daemon", "--no-detach", "--config="+conf, "--port=873"), w.readyB(873)...)
	w.steered(t, func(t *testing.T, host string, _ netip.Addr) {
		got := t.TempDir()
		output(t, w.lab.A, "rsync", "-a", "rsync://"+host+"/files/", got+"/")
		for name, want := range sums {
			if sum := fileSum(t, filepath.Join(got, name)); sum != want {
				t.Errorf("%s: sha256 %s, want %s", name, sum, want)
			}
		}
		// And up, after a change in the middle.
		want := writeStream(t, filepath.Join(got, "big"), 100, testkit.Size(14_000_000, 1_900_000))
		output(t, w.lab.A, "rsync", "-a", "--ignore-times", got+"/big", "rsync://"+host+"/files/up")
		if sum := fileSum(t, filepath.Join(src, "up")); sum != want {
			t.Errorf("uploaded: sha256 %s, want %s", sum, want)
		}
	})
}

func TestGitClone(t *testing.T) {
	w := newWorld(t, setup{})
	root := publicDir(t)
	repo := filepath.Join(root, "repo")
	git := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(testkit.NeedProgram(t, "git"), args...)
		cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@example.org", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@example.org", "GIT_CONFIG_GLOBAL=/dev/null")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "-q", "-b", "main", repo)
	for i := range testkit.Count(30, 10) {
		writeStream(t, filepath.Join(repo, fmt.Sprintf("f%d", i%7)), uint64(i), 100_000)
		git("-C", repo, "add", ".")
		git("-C", repo, "commit", "-q", "-m", fmt.Sprintf("change %d", i))
	}
	want := git("-C", repo, "rev-parse", "HEAD")
	daemon(t, w.lab.B, w.lab.B.Command(context.Background(), testkit.NeedProgram(t, "git"), "daemon", "--export-all", "--base-path="+root, "--reuseaddr", "--port=9418"), w.readyB(9418)...)
	w.steered(t, func(t *testing.T, host string, _ netip.Addr) {
		got := filepath.Join(t.TempDir(), "clone")
		output(t, w.lab.A, "git", "clone", "-q", "git://"+host+"/repo", got)
		git("-C", got, "fsck", "--full", "--strict")
		if head := git("-C", got, "rev-parse", "HEAD"); head != want {
			t.Errorf("the clone is at %s, want %s", head, want)
		}
	})
}

// publicDir is a temporary directory that every user may read; t.TempDir's parents are root's alone.
func publicDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "trunkline-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}
