// SPDX-License-Identifier: Apache-2.0

package window

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"

	"github.com/trunkline/trunkline/cmd/internal/labagent"
	"github.com/trunkline/trunkline/loader/ledger"
)

// The host-wide maxima of what a program may set as a socket's buffers. Network namespaces have none of their own.
const (
	rmemMax = "net.core.rmem_max"
	wmemMax = "net.core.wmem_max"
)

// maxima raises them while a run needs it, written down where the next bench's cleanup finds what a killed one left.
type maxima struct {
	ledger *ledger.Ledger
	raised []uint64 // entries
}

func openMaxima(dir string) (*maxima, error) {
	own := filepath.Join(dir, "maxima")
	state := filepath.Join(own, "state")
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, fmt.Errorf("making a directory: %w", err)
	}
	text := fmt.Sprintf("instance: bench-%d-maxima\nstate_dir: %s\nrun_dir: %s\n", os.Getpid(), state, own)
	if err := os.WriteFile(filepath.Join(own, labagent.ConfigName), []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("writing a configuration: %w", err)
	}
	l, err := ledger.Open(filepath.Join(state, "ledger.db"))
	if err != nil {
		return nil, err
	}
	return &maxima{ledger: l}, nil
}

// raise sees to it that programs may set buffers of so many bytes.
func (m *maxima) raise(bytes int) error {
	for _, name := range []string{rmemMax, wmemMax} {
		now, err := ledger.ReadSysctl(name)
		if err != nil {
			return err
		}
		if have, err := strconv.Atoi(now); err == nil && have >= bytes {
			continue
		}
		id, err := m.ledger.SetSysctl(name, strconv.Itoa(bytes))
		if err != nil {
			return fmt.Errorf("%w; the bench needs the host's initial network namespace", err)
		}
		if id > 0 {
			m.raised = append(m.raised, id)
		}
	}
	return nil
}

// lower undoes it, unless somebody else has changed the value since.
func (m *maxima) lower() error {
	if len(m.raised) == 0 {
		return nil
	}
	_, err := m.ledger.UndoOnly(slog.New(slog.DiscardHandler), m.raised...)
	if err == nil {
		m.raised = nil
	}
	return err
}

func (m *maxima) close() error {
	if m == nil {
		return nil
	}
	return errors.Join(m.lower(), m.ledger.Close())
}
