// SPDX-License-Identifier: Apache-2.0

// Package ledger writes down every lasting change to the host before it is made, so that it can be undone after any end,
// kill -9 included. What someone else has changed since is left alone and reported.
package ledger

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/trunkline/trunkline/loader/internal/clsact"
)

// ErrInUse says that another process, a running agent, holds the ledger.
var ErrInUse = errors.New("the ledger is in use by a running agent")

// openTimeout is how long another holder is waited for.
const openTimeout = time.Second

var bucket = []byte("entries")

// Kind says what an entry changed.
type Kind string

// The kinds of entries.
const (
	Sysctl Kind = "sysctl" // Target is its name with dots or slashes, Old and New its values
	Pin    Kind = "pin"    // Target is a path on bpffs
	Dir    Kind = "dir"    // Target is a directory, removed only if it is empty
	File   Kind = "file"   // Target is a file
	Paced  Kind = "paced"  // flows of Target, an instance, have rates of a reservation, whose low byte is New

	ClsactQdisc  Kind = "clsact-qdisc"  // Target is an interface, Place says which: its qdisc until a filter of ours stands there
	ClsactFilter Kind = "clsact-filter" // Target is an interface, Filter says which: at its egress, with the qdisc if that is ours
)

// Entry is one change.
type Entry struct {
	ID     uint64    `json:"id"` // given by Record, ascending
	Kind   Kind      `json:"kind"`
	Target string    `json:"target"`
	Old    string    `json:"old,omitempty"`
	New    string    `json:"new,omitempty"`
	Time   time.Time `json:"time"` // given by Record

	Place  *clsact.Place  `json:"place,omitempty"`
	Filter *clsact.Filter `json:"filter,omitempty"`
}

// Ledger is the file. It is safe for concurrent use.
type Ledger struct {
	db *bbolt.DB
}

// Open opens or creates the ledger and holds it until Close; ErrInUse if another process does.
func Open(path string) (*Ledger, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("creating the ledger's directory: %w", err)
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: openTimeout})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("opening %s: %w", path, ErrInUse)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the ledger %s: %w", path, err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(bucket)
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("preparing the ledger %s: %w", path, err), db.Close())
	}
	return &Ledger{db: db}, nil
}

// Close lets go of the file. Entries stay.
func (l *Ledger) Close() error { return l.db.Close() }

// Record writes an entry down and returns its number. It is on disk when Record returns: make the change only then.
func (l *Ledger) Record(e Entry) (uint64, error) {
	err := l.db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucket)
		id, err := b.NextSequence()
		if err != nil {
			return err
		}
		e.ID, e.Time = id, time.Now().UTC()
		v, err := json.Marshal(e)
		if err != nil {
			return err
		}
		return b.Put(key(id), v)
	})
	if err != nil {
		return 0, fmt.Errorf("recording %s %s in the ledger: %w", e.Kind, e.Target, err)
	}
	return e.ID, nil
}

// Forget takes an entry out: its change was not made after all, or is undone.
func (l *Ledger) Forget(id uint64) error {
	err := l.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(bucket).Delete(key(id)) })
	if err != nil {
		return fmt.Errorf("forgetting entry %d of the ledger: %w", id, err)
	}
	return nil
}

// Entries returns what is written down, oldest first.
func (l *Ledger) Entries() ([]Entry, error) {
	var entries []Entry
	err := l.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucket).ForEach(func(_, v []byte) error {
			var e Entry
			if err := json.Unmarshal(v, &e); err != nil {
				return err
			}
			entries = append(entries, e)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("reading the ledger: %w", err)
	}
	return entries, nil
}

// Undo undoes every change, the latest first. An entry that fails stays for the next time, and is an error among the
// results; an entry whose change someone else has overwritten is given up.
func (l *Ledger) Undo(log *slog.Logger) ([]Result, error) {
	return l.undo(log, func(Entry) bool { return true })
}

// UndoOnly undoes the changes with these numbers, the latest first.
func (l *Ledger) UndoOnly(log *slog.Logger, ids ...uint64) ([]Result, error) {
	return l.undo(log, func(e Entry) bool { return slices.Contains(ids, e.ID) })
}

func (l *Ledger) undo(log *slog.Logger, want func(Entry) bool) ([]Result, error) {
	entries, err := l.Entries()
	if err != nil {
		return nil, err
	}
	var results []Result
	var errs []error
	for _, e := range slices.Backward(entries) {
		if !want(e) {
			continue
		}
		r := undoEntry(e)
		results = append(results, r)
		log.Info("undo", "kind", e.Kind, "target", e.Target, "outcome", r.Outcome, "detail", r.Detail)
		if r.Outcome == Failed {
			errs = append(errs, fmt.Errorf("undoing %s %s: %s", e.Kind, e.Target, r.Detail))
			continue
		}
		if err := l.Forget(e.ID); err != nil {
			errs = append(errs, err)
		}
	}
	return results, errors.Join(errs...)
}

func key(id uint64) []byte { return binary.BigEndian.AppendUint64(nil, id) }
