// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/trunkline/trunkline/loader/ledger"
)

// LedgerPath returns where an instance keeps its ledger.
func LedgerPath(stateDir, instance string) string {
	return filepath.Join(stateDir, instance, "ledger.db")
}

// Cleanup undoes what an agent that did not end well left behind: what its ledger says and nothing else. Programs and links
// need no cleanup, they went with the process; filters of clsact do, and are looked for in the caller's network namespace.
// It refuses while the agent runs.
func Cleanup(ctx context.Context, stateDir, instance string, log *slog.Logger) ([]ledger.Result, error) {
	path := LedgerPath(stateDir, instance)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	l, err := ledger.Open(path)
	if errors.Is(err, ledger.ErrInUse) {
		return nil, fmt.Errorf("the agent of instance %s is running; stop it first: %w", instance, err)
	}
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	results, err := l.Undo(log)
	return results, errors.Join(err, l.Close())
}
