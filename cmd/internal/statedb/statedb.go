// SPDX-License-Identifier: Apache-2.0

// Package statedb keeps a set of records over restarts, in one file. A file that is damaged is never a reason not to run: it is
// moved aside, and another one begun.
package statedb

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// openTimeout is how long another holder is waited for.
const openTimeout = time.Second

// errCorrupt says that the file is no database, or not whole.
var errCorrupt = errors.New("the database is damaged")

// DB is the file. It is not safe for concurrent use.
type DB struct {
	path   string
	bucket []byte
	bolt   *bbolt.DB
	aside  string
}

// Open opens or creates the database at path, readable for its owner alone, and reads the records of the bucket. A damaged file
// is moved aside, Aside says where to, and a new one begun. With an error, a full disk for one, the database is there all the
// same: Save tries again.
func Open(path, bucket string) (*DB, map[string][]byte, error) {
	d := &DB{path: path, bucket: []byte(bucket)}
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
	return d, records, nil
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

// Save has the file hold these records and no others; what it returns without an error is on the disk. Only what differs is
// written, and nothing if nothing does. A file that turns out to be damaged is moved aside, and another one written.
func (d *DB) Save(want map[string][]byte) error {
	var err error
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

func (d *DB) openAndRead() (records map[string][]byte, err error) {
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
	err = guarded(func() error { return d.bolt.View(func(tx *bbolt.Tx) error { records = d.read(tx); return nil }) })
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

func (d *DB) read(tx *bbolt.Tx) map[string][]byte {
	records := map[string][]byte{}
	if b := tx.Bucket(d.bucket); b != nil {
		for c, k, v := cursor(b); k != nil; k, v = c.Next() {
			records[string(k)] = bytes.Clone(v)
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
			stale, missing = difference(tx.Bucket(d.bucket), want)
			return nil
		})
	})
	if err != nil || len(stale)+len(missing) == 0 {
		return err
	}
	return guarded(func() error {
		return d.bolt.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists(d.bucket)
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
