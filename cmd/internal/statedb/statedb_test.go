// SPDX-License-Identifier: Apache-2.0

package statedb

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
)

func TestRecordsSurvive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "x.db")
	d, records, err := Open(path, "things")
	if err != nil || len(records) != 0 {
		t.Fatalf("%v, %v", records, err)
	}
	for _, want := range []map[string][]byte{{"a": []byte("1"), "b": []byte("2")}, {"b": []byte("3")}, {}} {
		if err := d.Save(want); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		var got map[string][]byte
		if d, got, err = Open(path, "things"); err != nil {
			t.Fatal(err)
		}
		if !maps.EqualFunc(got, want, func(x, y []byte) bool { return string(x) == string(y) }) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v; want a file for its owner alone", info.Mode(), err)
	}
	d.Close()
}

func TestDamagedFileIsMovedAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	if err := os.WriteFile(path, []byte("no database at all"), 0o600); err != nil {
		t.Fatal(err)
	}
	d, records, err := Open(path, "things")
	if err != nil || len(records) != 0 || d.Aside() != path+".damaged" {
		t.Fatalf("%v, %v, aside %q", records, err, d.Aside())
	}
	defer d.Close()
	if err := d.Save(map[string][]byte{"a": []byte("1")}); err != nil {
		t.Error(err)
	}
}
