// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/trunkline/trunkline/cmd/internal/labagent"
)

// stallTimeout is how long a fetch may bring no byte before it has failed.
const stallTimeout = 60 * time.Second

// fetchAll makes the three fetches and compares each with the file.
func (w *world) fetchAll(ctx context.Context) (*Result, error) {
	want, err := hashFile(ctx, w.file.path)
	if err != nil {
		return nil, err
	}
	r := newResult(w.opts, w.file, want)
	for _, k := range []struct {
		name string
		port uint16
	}{{"direct", directPort}, {"cold", dedupPort}, {"warm", dedupPort}} {
		f, err := w.fetch(ctx, k.name, k.port)
		if err != nil {
			return nil, w.withLogs(fmt.Errorf("the %s fetch: %w", k.name, err))
		}
		got, err := hashFile(ctx, w.target())
		if err != nil {
			return nil, err
		}
		r.add(f, got == want)
		if err := os.Remove(w.target()); err != nil {
			return nil, fmt.Errorf("making room: %w", err)
		}
	}
	st, err := w.a.agent.Control().Status(ctx)
	if err != nil {
		return nil, w.a.agent.Failure(err)
	}
	r.finish(w.lab.Link.Stats(), st)
	return r, nil
}

// withLogs adds the end of both agents' logs to what went wrong, unless it was the person's wish.
func (w *world) withLogs(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("%w\nagent at site a%s\nagent at site b%s", err, labagent.Tail(w.a.agent.Log()), labagent.Tail(w.b.agent.Log()))
}

// target is where the client puts what it fetches.
func (w *world) target() string { return filepath.Join(w.dir, "fetched") }

// fetch runs a client at site A and measures what it costs.
func (w *world) fetch(ctx context.Context, name string, port uint16) (Fetch, error) {
	f := Fetch{Name: name}
	// The samples end with the fetch, whatever its end.
	sampling, stop := context.WithCancel(ctx)
	sampled := make(chan got, 1)
	go func() { sampled <- w.sample(sampling, port) }()

	before := w.lab.Link.Stats()
	took, err := w.client(ctx, name, port)
	stop()
	g := <-sampled
	if err != nil {
		return f, err
	}
	w.settle(ctx)
	st := w.lab.Link.Stats().Since(before)
	f.Seconds = took.Seconds()
	f.WANBytes = st.Bytes
	f.Retransmits, f.RetransmitsMarked, f.FirstMarked = st.Retransmits, st.RetransmitsMarked, st.FirstMarked
	f.Congestion, f.WindowBytes = g.congestion, g.window
	w.say.stepf("  %-6s done in %.2f s, %d bytes on the WAN", name, f.Seconds, f.WANBytes)
	return f, nil
}

// client runs curl, or this executable if there is no curl, and reports on it.
func (w *world) client(ctx context.Context, name string, port uint16) (time.Duration, error) {
	url := fmt.Sprintf("http://%s:%d/%s", w.b.Addr4, port, fileName)
	cmd := w.a.Command(ctx, w.opts.Binary, FetchCommand, url, w.target())
	if curl, err := exec.LookPath("curl"); err == nil {
		cmd = w.a.Command(ctx, curl, "-q", "-4", "-sS", "--fail", "-o", w.target(), url)
	}
	cmd.Env = withoutProxy(os.Environ())
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	start := time.Now()
	p, err := w.a.Start(cmd)
	if err != nil {
		return 0, err
	}
	type end struct {
		err error
		at  time.Time
	}
	ended := make(chan end, 1)
	go func() {
		err := p.Wait()
		ended <- end{err, time.Now()}
	}()
	seen, since := int64(0), start
	for {
		select {
		case e := <-ended:
			if ctx.Err() != nil {
				return 0, ctx.Err()
			}
			if e.err != nil {
				return 0, fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), e.err, strings.TrimSpace(complaint.String()))
			}
			return e.at.Sub(start), nil
		case <-time.After(pollEvery):
		}
		if n := sizeOf(w.target()); n > seen {
			seen, since = n, time.Now()
		}
		w.say.fetching(name, seen, w.file.size, time.Since(start))
		err := errors.Join(w.a.agent.Alive(), w.b.agent.Alive())
		if err == nil && time.Since(since) > stallTimeout {
			err = fmt.Errorf("nothing came for %v after %d bytes", stallTimeout, seen)
		}
		if err != nil {
			_ = p.Kill()
			<-ended
			return 0, err
		}
	}
}

func sizeOf(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// withoutProxy leaves out what could make the client go another way than a plain one.
func withoutProxy(env []string) []string {
	var kept []string
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		if !strings.HasSuffix(strings.ToLower(name), "_proxy") {
			kept = append(kept, e)
		}
	}
	return kept
}

// settle waits until the last acknowledgements of a fetch have crossed the WAN. The agents' own talk never ends, so it
// does not wait for silence alone.
func (w *world) settle(ctx context.Context) {
	quiet := max(2*w.opts.RTT, 100*time.Millisecond)
	deadline := time.After(quiet + time.Second)
	last := w.lab.Link.Stats()
	for {
		select {
		case <-ctx.Done():
			return
		case <-deadline:
			return
		case <-time.After(quiet):
		}
		now := w.lab.Link.Stats()
		if now.Bytes == last.Bytes {
			return
		}
		last = now
	}
}
