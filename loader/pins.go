// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/loader/ledger"
)

// bpffsMagic is the file system type of bpffs.
const bpffsMagic = 0xcafe4a11

// pinnedMaps are those that people read with bpftool. None of them carries a program, so a pin that a killed agent leaves
// behind does nothing.
var pinnedMaps = []string{
	"tl_agent", "tl_bypass", "tl_choice", "tl_class", "tl_dest", "tl_flow", "tl_iface", "tl_loss_dropped", "tl_path", "tl_peer",
	"tl_reason", "tl_rule",
}

// pinMaps pins the maps that people read, where there is a bpffs. It mounts none.
func (l *Loader) pinMaps() {
	dir := filepath.Join(l.o.BPFFS, "trunkline", l.o.Instance)
	err := l.pinInto(dir)
	f := Feature{Name: "pins", On: err == nil, Detail: "maps for bpftool in " + dir}
	var off *pinsOff
	switch {
	case errors.As(err, &off):
		f.Detail, f.Remedy = off.detail, off.remedy
	case err != nil:
		f.Detail, f.Remedy = err.Error(), "see that "+l.o.BPFFS+" can be written"
	}
	l.feature(f)
}

// pinsOff says that there is no place for pins.
type pinsOff struct{ detail, remedy string }

func (e *pinsOff) Error() string { return e.detail }

func (l *Loader) pinInto(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(l.o.BPFFS, &st); err != nil || uint32(st.Type) != bpffsMagic {
		return &pinsOff{"no bpffs is mounted at " + l.o.BPFFS, "mount -t bpf bpf " + l.o.BPFFS + ", then restart the agent"}
	}
	if l.o.Ledger == nil {
		return &pinsOff{"no ledger to write pins down in", "give the agent a state directory"}
	}
	if err := l.dropStalePins(dir); err != nil {
		return err
	}
	var ids []uint64
	l.onClose(func() error {
		_, err := l.o.Ledger.UndoOnly(l.log, ids...)
		return err
	})
	for _, d := range []string{filepath.Dir(dir), dir} {
		id, err := l.makeDir(d)
		if err != nil {
			return err
		}
		ids = append(ids, id)
	}
	for _, name := range pinnedMaps {
		path := filepath.Join(dir, name)
		id, err := l.o.Ledger.Record(ledger.Entry{Kind: ledger.Pin, Target: path})
		if err != nil {
			return err
		}
		if err := l.maps[name].Pin(path); err != nil {
			return errors.Join(fmt.Errorf("pinning %s: %w", path, err), l.o.Ledger.Forget(id))
		}
		ids = append(ids, id)
	}
	return nil
}

// dropStalePins takes away what an agent that was killed left in the directory, as far as the ledger knows it.
func (l *Loader) dropStalePins(dir string) error {
	entries, err := l.o.Ledger.Entries()
	if err != nil {
		return err
	}
	var stale []uint64
	for _, e := range entries {
		if e.Kind == ledger.Pin && strings.HasPrefix(e.Target, dir+"/") || e.Kind == ledger.Dir && strings.HasPrefix(dir+"/", e.Target+"/") {
			stale = append(stale, e.ID)
		}
	}
	_, err = l.o.Ledger.UndoOnly(l.log, stale...)
	return err
}

// makeDir creates a directory and returns the number of its entry. One that is there already is written down too: whoever
// of several instances is the last removes it, when it is empty.
func (l *Loader) makeDir(dir string) (uint64, error) {
	id, err := l.o.Ledger.Record(ledger.Entry{Kind: ledger.Dir, Target: dir})
	if err != nil {
		return 0, err
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return 0, errors.Join(fmt.Errorf("creating %s: %w", dir, err), l.o.Ledger.Forget(id))
	}
	return id, nil
}
