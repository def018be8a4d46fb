// SPDX-License-Identifier: Apache-2.0

package history

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// A place is where a peer's logs, or one log, are kept.
type place struct {
	dir  string // empty: in memory
	name string // of the group
	dirs direction
}

// peerDir names a peer's directory: by its key, so that it says whose it is, whatever the configuration calls the peer.
func peerDir(root string, key []byte) string { return filepath.Join(root, hex.EncodeToString(key)) }

// group gives the place of a group's log. Names of groups are the peer's to choose: the directory's begins with what is harmless
// in it.
func (p place) group(name string) place {
	g := place{name: name, dirs: p.dirs}
	if p.dir == "" {
		return g
	}
	plain := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '_'
	}, name)
	sum := sha256.Sum256([]byte(name))
	g.dir = filepath.Join(p.dir, p.dirs.String()+"-"+plain[:min(len(plain), 32)]+"-"+hex.EncodeToString(sum[:8]))
	return g
}

// String returns "sent" or "received".
func (d direction) String() string {
	if d == sent {
		return "sent"
	}
	return "received"
}

// removeLog takes a log's files away, those that say what the others hold first.
func removeLog(dir string) {
	for _, name := range []string{liveFile, noteFile, ringFile, indexFile} {
		_ = os.RemoveAll(filepath.Join(dir, name))
	}
	_ = os.RemoveAll(dir)
}

// forgetNote makes sure that no note is taken for what the log is after the machine has ended.
func forgetNote(dir string) error {
	if err := os.Remove(filepath.Join(dir, noteFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return syncDir(dir)
}

// thisBoot asks the kernel which run of it this is; zero if it does not say: then every run is another one.
func thisBoot() (id bootID) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err == nil {
		n, err := hex.Decode(id[:], []byte(strings.ReplaceAll(strings.TrimSpace(string(b)), "-", "")))
		if err != nil || n != len(id) {
			return bootID{}
		}
	}
	return id
}

// epochOf reads the epoch of a peer's directory, or makes a new one.
func epochOf(dir string) (uint64, error) {
	path := filepath.Join(dir, "epoch")
	var epoch uint64
	if b, err := readFile(path, 64); err == nil {
		if n, _ := fmt.Sscanf(string(b), "%x\n", &epoch); n == 1 && epoch != 0 {
			return epoch, nil
		}
	}
	epoch = newEpoch()
	f, err := replace(path, fmt.Appendf(nil, "%016x\n", epoch), 0, true)
	if err != nil {
		return epoch, err
	}
	return epoch, f.Close()
}

// DiskUsage returns the bytes that the files in a directory of histories take on the disk.
func DiskUsage(directory string) (bytes int64, err error) {
	err = filepath.WalkDir(directory, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		bytes += st.Blocks * 512
		return nil
	})
	return bytes, err
}

// ErrInUse says that another agent keeps its histories in the directory.
var ErrInUse = errors.New("another agent keeps its histories there")

// lockDir makes a directory its owner's alone, and this process' as long as the file is open.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o700); err != nil { // whoever made it
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	err = ignoringEINTR(func() error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrInUse
	}
	return nil, fmt.Errorf("%s: %w", dir, err)
}
