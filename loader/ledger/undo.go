// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/bpf"
	"github.com/trunkline/trunkline/loader/internal/paced"
)

// Outcome says what came of undoing an entry.
type Outcome string

// The outcomes.
const (
	Restored Outcome = "restored" // the change is undone
	Already  Outcome = "already"  // nothing was left to undo
	Left     Outcome = "left"     // someone else changed it since: left alone
	Failed   Outcome = "failed"   // still to be undone; Detail says why
)

// Result is what came of one entry.
type Result struct {
	Entry   Entry   `json:"entry"`
	Outcome Outcome `json:"outcome"`
	Detail  string  `json:"detail,omitempty"`
}

func undoEntry(e Entry) Result {
	var o Outcome
	var detail string
	switch e.Kind {
	case Sysctl:
		o, detail = undoHanded(e)
	case Pin, File, Dir:
		o, detail = remove(e.Target)
	case ClsactQdisc, ClsactFilter:
		o, detail = undoClsact(e)
	case Paced:
		o, detail = undoPaced(e)
	case StructOps:
		o, detail = undoStructOps(e)
	default:
		o, detail = Failed, fmt.Sprintf("unknown kind %q: written by another version?", e.Kind)
	}
	return Result{Entry: e, Outcome: o, Detail: detail}
}

// undoSysctl puts a value back, or what an agent that ended earlier has handed over for it.
func undoSysctl(e Entry, h handed) (Outcome, string) {
	now, err := ReadSysctl(e.Target)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return Already, "the sysctl is gone"
	case err != nil:
		return Failed, err.Error()
	case now == words(e.Old):
		return Already, ""
	case now != words(e.New):
		h.over(words(e.New), words(e.Old))
		return Left, fmt.Sprintf("it is %q now, not our %q: someone else changed it since", now, e.New)
	}
	if err := WriteSysctl(e.Target, h.take(words(e.Old))); err != nil {
		return Failed, err.Error()
	}
	return Restored, ""
}

// undoPaced takes rates and windows of reservations from the sockets of an agent that was killed, in the caller's network
// namespace.
func undoPaced(e Entry) (Outcome, string) {
	sign, err := strconv.ParseUint(e.New, 10, 8)
	if err != nil {
		return Left, fmt.Sprintf("%q is no sign of rates", e.New)
	}
	if err := paced.Once(bpf.ReleaseOrphans, uint8(sign), nil); err != nil {
		return Failed, err.Error()
	}
	return Restored, ""
}

// remove takes away a file, a pin, or a directory that is empty.
func remove(path string) (Outcome, string) {
	err := os.Remove(path)
	switch {
	case err == nil:
		return Restored, ""
	case errors.Is(err, os.ErrNotExist):
		return Already, ""
	case errors.Is(err, unix.ENOTEMPTY):
		return Left, "others have put something into it"
	}
	return Failed, err.Error()
}

// SetSysctl writes the old value down and then the new one into the kernel. It returns the number of the entry, 0 if the
// value was the same already.
func (l *Ledger) SetSysctl(name, value string) (uint64, error) {
	old, err := ReadSysctl(name)
	if err != nil {
		return 0, err
	}
	if old == words(value) {
		return 0, nil
	}
	// Without the directory the change is still made, and undone as far as this ledger knows.
	_ = handover(name, func(h handed) { h.found(old) })
	id, err := l.Record(Entry{Kind: Sysctl, Target: name, Old: old, New: words(value)})
	if err != nil {
		return 0, err
	}
	if err := WriteSysctl(name, value); err != nil {
		return 0, errors.Join(err, l.Forget(id))
	}
	return id, nil
}

// ReadSysctl returns a sysctl's value, its words separated by single spaces.
func ReadSysctl(name string) (string, error) {
	b, err := os.ReadFile(sysctlPath(name))
	if err != nil {
		return "", fmt.Errorf("reading sysctl %s: %w", name, err)
	}
	return words(string(b)), nil
}

// WriteSysctl sets a sysctl without writing anything down.
func WriteSysctl(name, value string) error {
	if err := os.WriteFile(sysctlPath(name), []byte(value), 0o644); err != nil {
		return fmt.Errorf("setting sysctl %s: %w", name, err)
	}
	return nil
}

// sysctlPath takes net.core.rmem_max and net/ipv4/conf/eth0.1/x: where a slash occurs, dots are part of names.
func sysctlPath(name string) string {
	if !strings.Contains(name, "/") {
		name = strings.ReplaceAll(name, ".", "/")
	}
	return filepath.Join("/proc/sys", filepath.Clean("/"+name))
}

func words(s string) string { return strings.Join(strings.Fields(s), " ") }
