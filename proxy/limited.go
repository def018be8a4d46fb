// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"log/slog"
	"sync"
	"time"
)

const (
	limitedEvery = 10 * time.Second
	limitedKinds = 256
)

// limitedLog writes each kind of line at most once in ten seconds, so that nobody can fill the disk from outside.
type limitedLog struct {
	log *slog.Logger

	mu   sync.Mutex
	last map[string]*limitedKind
}

type limitedKind struct {
	at      time.Time
	skipped int
}

func newLimitedLog(log *slog.Logger) *limitedLog {
	return &limitedLog{log: log, last: map[string]*limitedKind{}}
}

func (l *limitedLog) warn(msg string, args ...any) {
	l.mu.Lock()
	k := l.last[msg]
	if k == nil {
		if len(l.last) >= limitedKinds {
			clear(l.last)
		}
		k = &limitedKind{}
		l.last[msg] = k
	}
	if time.Since(k.at) < limitedEvery {
		k.skipped++
		l.mu.Unlock()
		return
	}
	skipped := k.skipped
	k.at, k.skipped = time.Now(), 0
	l.mu.Unlock()
	if skipped > 0 {
		args = append(args, "suppressed", skipped)
	}
	l.log.Warn(msg, args...)
}
