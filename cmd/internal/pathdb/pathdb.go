// SPDX-License-Identifier: Apache-2.0

// Package pathdb keeps what was chosen for paths over restarts, in one bounded file. What is in it can be learnt again, so
// nothing about the file is ever a reason not to run: one that cannot be read is moved aside.
package pathdb

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/trunkline/trunkline/cc/choice"
)

// The bounds of the file: beyond, what was used least lately is dropped.
const (
	MaxPaths = 10_000
	MaxAge   = choice.RecordAge
)

// openTimeout is how long another holder is waited for.
const openTimeout = time.Second

var bucket = []byte("paths")

// errCorrupt says that the file is no database, or not whole.
var errCorrupt = errors.New("the database is damaged")

// DB is the file. It is not safe for concurrent use.
type DB struct {
	path  string
	bolt  *bbolt.DB
	aside string
}

// Open opens or creates the database at path, readable for its owner alone, and reads what it holds: no record that is older
// than MaxAge at now, and no more than MaxPaths. A damaged file is moved aside, Aside says where to, and a new one begun. With an
// error, a full disk for one, the database is there all the same: Save tries again.
func Open(path string, now time.Time) (*DB, []choice.Record, error) {
	d := &DB{path: path}
	records, err := d.openAndRead()
	if errors.Is(err, errCorrupt) {
		if err := d.moveAside(); err != nil {
			return d, nil, err
		}
		records, err = d.openAndRead()
	}
	if err != nil {
		return d, nil, errors.Join(err, d.Close())
	}
	return d, bounded(records, now), nil
}

// Aside is where a damaged file has been moved to, "" if none was.
func (d *DB) Aside() string { return d.aside }

// Close lets go of the file.
func (d *DB) Close() error {
	if d.bolt == nil {
		return nil
	}
	b := d.bolt
	d.bolt = nil
	return guarded(b.Close)
}

// Save has the file hold these records and no others, within its bounds as Open says. Only what differs is written, and
// nothing if nothing does. A file that turns out to be damaged is moved aside, and another one written.
func (d *DB) Save(now time.Time, records []choice.Record) error {
	want, err := encode(bounded(slices.Clone(records), now))
	if err != nil {
		return err
	}
	if d.bolt == nil { // what failed the last time may work now
		_, err = d.openAndRead()
	}
	if err == nil {
		err = d.write(want)
	}
	if isCorrupt(err) {
		if err := d.moveAside(); err != nil {
			return err
		}
		if _, err = d.openAndRead(); err == nil {
			err = d.write(want)
		}
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", d.path, err)
	}
	return nil
}

func (d *DB) openAndRead() (records []choice.Record, err error) {
	if err := os.MkdirAll(filepath.Dir(d.path), 0o700); err != nil {
		return nil, fmt.Errorf("creating the directory of %s: %w", d.path, err)
	}
	err = guarded(func() error {
		var err error
		d.bolt, err = bbolt.Open(d.path, 0o600, &bbolt.Options{Timeout: openTimeout})
		return err
	})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, fmt.Errorf("opening %s: another process holds it; end that one (fuser %s)", d.path, d.path)
	case isCorrupt(err):
		return nil, fmt.Errorf("opening %s: %w: %w", d.path, errCorrupt, err)
	case err != nil:
		return nil, fmt.Errorf("opening %s: %w", d.path, err)
	}
	if err := os.Chmod(d.path, 0o600); err != nil { // whoever made it
		return nil, fmt.Errorf("confining %s to its owner: %w", d.path, err)
	}
	err = guarded(func() error { return d.bolt.View(func(tx *bbolt.Tx) error { records = read(tx); return nil }) })
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", d.path, err)
	}
	return records, nil
}

// isCorrupt knows what the library says of files that are none of its own. The last has no name there.
func isCorrupt(err error) bool {
	return errors.Is(err, bolterrors.ErrInvalid) || errors.Is(err, bolterrors.ErrChecksum) ||
		errors.Is(err, bolterrors.ErrVersionMismatch) || errors.Is(err, bolterrors.ErrIncompatibleValue) || errors.Is(err, errCorrupt) ||
		err != nil && bytes.Contains([]byte(err.Error()), []byte("file size too small"))
}

// read leaves out what it cannot make sense of; the next Save takes it away.
func read(tx *bbolt.Tx) []choice.Record {
	b := tx.Bucket(bucket)
	if b == nil {
		return nil
	}
	var records []choice.Record
	for c, k, v := cursor(b); k != nil; k, v = c.Next() {
		var r choice.Record
		if json.Unmarshal(v, &r) == nil && bytes.Equal(k, key(r)) {
			records = append(records, r)
		}
	}
	return records
}

func cursor(b *bbolt.Bucket) (c *bbolt.Cursor, k, v []byte) {
	c = b.Cursor()
	k, v = c.First()
	return c, k, v
}

// write brings the file to what is wanted.
func (d *DB) write(want map[string][]byte) error {
	var stale [][]byte
	missing := map[string][]byte{}
	err := guarded(func() error {
		return d.bolt.View(func(tx *bbolt.Tx) error {
			stale, missing = difference(tx.Bucket(bucket), want)
			return nil
		})
	})
	if err != nil || len(stale)+len(missing) == 0 {
		return err
	}
	return guarded(func() error {
		return d.bolt.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists(bucket)
			for _, k := range stale {
				err = errors.Join(err, b.Delete(k))
			}
			for k, v := range missing {
				if err == nil {
					err = b.Put([]byte(k), v)
				}
			}
			return err
		})
	})
}

func difference(b *bbolt.Bucket, want map[string][]byte) (stale [][]byte, missing map[string][]byte) {
	missing = make(map[string][]byte, len(want))
	for k, v := range want {
		if b == nil || !bytes.Equal(b.Get([]byte(k)), v) {
			missing[k] = v
		}
	}
	if b == nil {
		return nil, missing
	}
	for c, k, _ := cursor(b); k != nil; k, _ = c.Next() {
		if _, ok := want[string(k)]; !ok {
			stale = append(stale, bytes.Clone(k))
		}
	}
	return stale, missing
}

// moveAside keeps a damaged file for whoever wants to look, the latest one only.
func (d *DB) moveAside() error {
	if err := d.Close(); err != nil && !errors.Is(err, errCorrupt) {
		return err
	}
	aside := d.path + ".damaged"
	if err := os.Rename(d.path, aside); err != nil {
		return fmt.Errorf("moving the damaged %s aside: %w; remove it", d.path, err)
	}
	d.aside = aside
	return nil
}

// guarded turns what a damaged file does to the library, which trusts what it has mapped, into errCorrupt: panics, and faults
// of memory where the file ends too early.
func guarded(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errCorrupt, r)
		}
	}()
	return f()
}

// bounded drops what is too old, and what was used least lately beyond the bound; records is overwritten.
func bounded(records []choice.Record, now time.Time) []choice.Record {
	records = slices.DeleteFunc(records, func(r choice.Record) bool { return now.Sub(r.Updated) > MaxAge })
	slices.SortStableFunc(records, func(a, b choice.Record) int { return b.Updated.Compare(a.Updated) })
	return records[:min(len(records), MaxPaths)]
}

func key(r choice.Record) []byte { return []byte(r.Path.Prefix.String() + " " + r.Path.Peer) }

func encode(records []choice.Record) (map[string][]byte, error) {
	out := make(map[string][]byte, len(records))
	for _, r := range records {
		v, err := json.Marshal(r)
		if err != nil {
			return nil, fmt.Errorf("writing down path %s: %w", r.Path.Prefix, err)
		}
		out[string(key(r))] = v
	}
	return out, nil
}
