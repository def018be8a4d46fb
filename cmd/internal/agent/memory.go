// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"log/slog"
	"sync"
	"time"

	"github.com/trunkline/trunkline/cc/choice"
	"github.com/trunkline/trunkline/cmd/internal/pathdb"
)

// memory keeps choices over a restart, as far as the disk lets it. That it does not is a warning, said once until it does.
type memory struct {
	mu     sync.Mutex // guards what follows
	db     *pathdb.DB
	opened bool
	err    error
}

// open reads the database, the first time it is called.
func (m *memory) open(path string, now time.Time, log *slog.Logger) []choice.Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.opened {
		return nil
	}
	m.opened = true
	var records []choice.Record
	m.db, records, m.err = pathdb.Open(path, now)
	if m.err != nil {
		log.Warn("what was chosen for paths cannot be read; the agent goes on and tries to keep what it chooses", "err", m.err)
	}
	if aside := m.db.Aside(); aside != "" {
		log.Warn("the database of paths was damaged: choices begin anew", "file", path, "moved_to", aside)
	}
	return records
}

func (m *memory) save(now time.Time, records []choice.Record, log *slog.Logger) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.db == nil {
		return
	}
	aside := m.db.Aside()
	err := m.db.Save(now, records)
	switch {
	case err != nil && m.err == nil:
		log.Warn("what was chosen for paths cannot be saved; the agent goes on and tries again", "err", err)
	case err == nil && m.err != nil:
		log.Info("what was chosen for paths is saved again")
	}
	if m.db.Aside() != aside {
		log.Warn("the database of paths was damaged, and has been written anew", "moved_to", m.db.Aside())
	}
	m.err = err
}

// problem is why choices are not kept, "" if they are.
func (m *memory) problem() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		return ""
	}
	return m.err.Error()
}

func (m *memory) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.db == nil {
		return nil
	}
	db := m.db
	m.db = nil
	return db.Close()
}
