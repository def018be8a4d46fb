// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/loader/internal/testenv"
	"github.com/trunkline/trunkline/loader/policy"
)

// TestSpliceKilledAgent: an agent that is killed ends its connections with a reset, never with a clean end, whether or not
// it had read what was redirected.
func TestSpliceKilledAgent(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	if os.Getenv(killedEnv) != "" {
		w := newSteeredWorld(t, policy.SpliceForce)
		os.Stdout.WriteString("ready\n")
		for n := 0; ; n++ {
			_ = w.ln4.SetDeadline(time.Now().Add(testkit.Wait(time.Minute)))
			c, err := w.ln4.AcceptTCP()
			must(t, err)
			if n%2 == 0 {
				_, _ = io.ReadFull(c, make([]byte, 7))
			}
			_, _ = c.Write([]byte("answer"))
		}
	}
	testenv.NewWorld(t)
	for range testkit.Count(5, 2) {
		agent := startAgent(t)
		var apps []net.Conn
		for range 10 {
			c, err := net.DialTimeout("tcp", steered4, testkit.Wait(5*time.Second))
			must(t, err)
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(testkit.Wait(10 * time.Second)))
			_, err = c.Write([]byte("request"))
			must(t, err)
			_, err = io.ReadFull(c, make([]byte, 6))
			must(t, err)
			apps = append(apps, c)
		}
		must(t, agent.Process.Kill())
		_ = agent.Wait() // "signal: killed"
		for i, c := range apps {
			if _, err := io.ReadAll(c); !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("connection %d: the application sees %v", i, err)
			}
		}
	}
}
