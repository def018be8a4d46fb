// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Directory is a provisioning system that puts files into a directory: NAME.json holds a Request. What became of it stands in
// report/NAME.json. The directory is read again and again rather than watched by inotify, which network file systems do not tell
// about: a reservation begins by its start, not by when its file comes.
type Directory struct {
	Path string

	said map[string][]byte // the reports as written; the broker's goroutine alone
}

const (
	maxOrderBytes  = 64 << 10
	maxEntries     = 4 * MaxOrders // of the directory, so that others' files do not count as orders
	reportsName    = "report"
	orderExtension = ".json"
)

// Pull reads the files. One that cannot be read is an order with a problem: what was granted by it before stays.
func (d *Directory) Pull(context.Context) ([]Order, error) {
	if err := d.confined(); err != nil {
		return nil, err
	}
	dir, err := os.Open(d.Path)
	if err != nil {
		return nil, fmt.Errorf("reading the directory of reservations: %w", err)
	}
	defer dir.Close()
	entries, err := dir.ReadDir(maxEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("reading the directory of reservations: %w", err)
	}
	if len(entries) > maxEntries {
		return nil, fmt.Errorf("%s has more than %d entries; remove what is no reservation", d.Path, maxEntries)
	}
	var orders []Order
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), orderExtension)
		if !ok || strings.HasPrefix(name, ".") { // a writer's temporary file, for one
			continue
		}
		q, err := readOrder(filepath.Join(d.Path, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it went just now
		}
		q.ID = name
		orders = append(orders, Order{q, err})
	}
	return orders, nil
}

// confined refuses a directory into which anybody can write: they could reserve in the name of its owner.
func (d *Directory) confined() error {
	info, err := os.Stat(d.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the directory %s does not exist; make it: install -d -m 0755 %s", d.Path, d.Path)
	case err != nil:
		return fmt.Errorf("looking at the directory of reservations: %w", err)
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory; correct `directory` of the system", d.Path)
	case info.Mode().Perm()&0o002 != 0:
		return fmt.Errorf("anybody can write into %s, and so reserve; chmod o-w %s", d.Path, d.Path)
	}
	return nil
}

func readOrder(path string) (q Request, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return q, fmt.Errorf("opening a reservation: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return q, refuse(Malformed, "%s is not a regular file", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxOrderBytes+1))
	if err != nil {
		return q, fmt.Errorf("reading a reservation: %w", err)
	}
	if len(data) > maxOrderBytes {
		return q, refuse(Malformed, "%s has more than %d bytes", path, maxOrderBytes)
	}
	q, err = decodeOrder(data)
	if err != nil {
		return Request{}, refuse(Malformed, "%s: %v", path, err)
	}
	return q, nil
}

// decodeOrder takes no key that it does not know: a misspelt one would silently mean something else.
func decodeOrder(data []byte) (q Request, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&q); err != nil {
		return q, fmt.Errorf("not the JSON of a reservation: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return q, errors.New("something follows the JSON of the reservation")
	}
	return q, nil
}

// Report writes a file for each order, and removes those of orders that are gone.
func (d *Directory) Report(_ context.Context, reports []Report) error {
	dir := filepath.Join(d.Path, reportsName)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making the directory of reports: %w; under systemd it takes ReadWritePaths=%s", err, d.Path)
	}
	said := map[string][]byte{}
	for _, r := range reports {
		if !ValidName(r.ID) {
			continue // its name cannot be that of a file; the log has it
		}
		data, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return fmt.Errorf("writing a report: %w", err)
		}
		said[r.ID] = data
		if bytes.Equal(d.said[r.ID], data) {
			continue
		}
		if err := replaceFile(filepath.Join(dir, r.ID+orderExtension), append(data, '\n')); err != nil {
			return err
		}
	}
	d.said = said
	return d.removeOthers(dir)
}

func (d *Directory) removeOthers(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("reading the directory of reports: %w", err)
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), orderExtension)
		if _, wanted := d.said[name]; !ok || wanted {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing a report: %w", err)
		}
	}
	return nil
}

// replaceFile writes a file that readers see whole, before or after.
func replaceFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".report-*")
	if err != nil {
		return fmt.Errorf("writing a report: %w", err)
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("writing a report: %w", err), os.Remove(f.Name()))
	}
	return nil
}
