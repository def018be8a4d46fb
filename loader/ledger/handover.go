// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// handoverDir is where ledgers of one host tell each other of sysctls. It is gone after a boot, as the values are.
//
// Two agents may raise one sysctl, one after the other. The first to end finds the other's value and leaves it alone; the
// other one would put back what it found, the first one's value, for which there is no more reason then. So the first hands over
// what its own value stood for.
var handoverDir = "/run/trunkline/sysctl"

// handed is what a value of a sysctl stood for, by value.
type handed map[string]string

// handover runs f with what has been handed over of a sysctl, under a lock that all ledgers of the host take, and keeps what f leaves.
func handover(name string, f func(handed)) error {
	file, err := lockHanded(filepath.Join(handoverDir, handoverName(name)))
	if err != nil {
		return fmt.Errorf("reading what was handed over of sysctl %s: %w", name, err)
	}
	defer file.Close()
	h := handed{}
	if err := json.NewDecoder(file).Decode(&h); err != nil {
		h = handed{} // nothing was, or it is damaged: then it counts as nothing
	}
	f(h)
	if err := keepHanded(file, h); err != nil {
		return fmt.Errorf("writing what is handed over of sysctl %s: %w", name, err)
	}
	return nil
}

// lockHanded opens and locks a file, made if it is not there. Whoever had it before may have removed it since it was opened.
func lockHanded(path string) (*os.File, error) {
	for {
		if err := os.MkdirAll(handoverDir, 0o755); err != nil {
			return nil, err
		}
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if errors.Is(err, os.ErrNotExist) {
			continue // the directory has just been removed
		}
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
			file.Close()
			return nil, err
		}
		opened, err := file.Stat()
		if there, errThere := os.Stat(path); err == nil && errThere == nil && os.SameFile(opened, there) {
			return file, nil
		}
		file.Close()
	}
}

// keepHanded writes a locked file, or removes it and its directory when there is nothing to keep.
func keepHanded(file *os.File, h handed) error {
	if len(h) == 0 {
		err := os.Remove(file.Name())
		_ = os.Remove(handoverDir) // unless it holds others
		return err
	}
	b, err := json.Marshal(h)
	if err == nil {
		err = file.Truncate(0)
	}
	if err == nil {
		_, err = file.WriteAt(b, 0)
	}
	return err
}

// handoverName is a file's for a sysctl; most sysctls of the network are a network namespace's own.
func handoverName(name string) string {
	space, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		space = "net:[]"
	}
	return strings.ReplaceAll(strings.TrimPrefix(sysctlPath(name), "/proc/sys/"), "/", ".") + "@" + strings.Trim(space, "net:[]")
}

// found takes note that somebody has found a value: what an earlier holder of the same value handed over is not about this one.
func (h handed) found(value string) { delete(h, value) }

// over hands over that a value stood for an older one.
func (h handed) over(value, older string) {
	older = h.take(older)
	if value != older {
		h[value] = older
	}
}

// take returns what is to be put back instead of a value.
func (h handed) take(value string) string {
	for {
		older, ok := h[value]
		if !ok {
			return value
		}
		delete(h, value)
		value = older
	}
}

// undoHanded undoes a change of a sysctl under that lock.
func undoHanded(e Entry) (o Outcome, detail string) {
	undone := false
	err := handover(e.Target, func(h handed) {
		o, detail = undoSysctl(e, h)
		undone = true
	})
	if !undone { // a directory that cannot be written to keeps nobody from putting a value back
		o, detail = undoSysctl(e, handed{})
	}
	if err != nil && detail == "" {
		detail = err.Error()
	}
	return o, detail
}
