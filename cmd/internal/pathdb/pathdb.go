// SPDX-License-Identifier: Apache-2.0

// Package pathdb keeps what was chosen for paths over restarts, in one bounded file. What is in it can be learnt again, so
// nothing about the file is ever a reason not to run: one that cannot be read is moved aside.
package pathdb

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/trunkline/trunkline/cc/choice"
	"github.com/trunkline/trunkline/cmd/internal/statedb"
)

// The bounds of the file: beyond, what was used least lately is dropped.
const (
	MaxPaths = 10_000
	MaxAge   = choice.RecordAge
)

// DB is the file. It is not safe for concurrent use.
type DB struct{ *statedb.DB }

// Open opens or creates the database at path, readable for its owner alone, and reads what it holds: no record that is older
// than MaxAge at now, and no more than MaxPaths. A damaged file is moved aside, Aside says where to, and a new one begun. With an
// error, a full disk for one, the database is there all the same: Save tries again.
func Open(path string, now time.Time) (*DB, []choice.Record, error) {
	d, found, err := statedb.Open(path, "paths")
	return &DB{d}, bounded(decode(found), now), err
}

// Save has the file hold these records and no others, within its bounds as Open says. Only what differs is written, and
// nothing if nothing does. A file that turns out to be damaged is moved aside, and another one written.
func (d *DB) Save(now time.Time, records []choice.Record) error {
	want, err := encode(bounded(slices.Clone(records), now))
	if err != nil {
		return err
	}
	return d.DB.Save(want)
}

// decode leaves out what it cannot make sense of; the next Save takes it away.
func decode(found map[string][]byte) []choice.Record {
	var records []choice.Record
	for k, v := range found {
		var r choice.Record
		if json.Unmarshal(v, &r) == nil && key(r) == k {
			records = append(records, r)
		}
	}
	return records
}

// bounded drops what is too old, and what was used least lately beyond the bound; records is overwritten.
func bounded(records []choice.Record, now time.Time) []choice.Record {
	records = slices.DeleteFunc(records, func(r choice.Record) bool { return now.Sub(r.Updated) > MaxAge })
	slices.SortStableFunc(records, func(a, b choice.Record) int { return b.Updated.Compare(a.Updated) })
	return records[:min(len(records), MaxPaths)]
}

func key(r choice.Record) string { return r.Path.Prefix.String() + " " + r.Path.Peer }

func encode(records []choice.Record) (map[string][]byte, error) {
	out := make(map[string][]byte, len(records))
	for _, r := range records {
		v, err := json.Marshal(r)
		if err != nil {
			return nil, fmt.Errorf("writing down path %s: %w", r.Path.Prefix, err)
		}
		out[key(r)] = v
	}
	return out, nil
}
