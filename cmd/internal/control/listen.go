// SPDX-License-Identifier: Apache-2.0

package control

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"time"
)

// ErrInUse says that another agent answers on the socket.
var ErrInUse = errors.New("another agent answers on the control socket")

// maxPath is the room that sockaddr_un has.
const maxPath = 107

// Listener is a unix listener whose socket file goes away with it.
type Listener struct {
	*net.UnixListener
	path string
	ino  os.FileInfo
}

// Listen opens the socket at path. It is bound under another name and gets its mode and group before it is renamed into
// place, so that nobody can open it with wider rights in between, and a stale socket of a killed agent is replaced at once.
func Listen(path, group string) (*Listener, error) {
	gid, err := lookupGroup(group)
	if err != nil {
		return nil, err
	}
	if len(path) > maxPath {
		return nil, fmt.Errorf("the control socket's path %s has %d bytes, the kernel takes %d; choose a shorter run_dir", path, len(path), maxPath)
	}
	dir := filepath.Dir(path)
	if err := Vacant(path); err != nil {
		return nil, err
	}
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	temp := filepath.Join(dir, ".c"+strconv.Itoa(os.Getpid()))
	if err := os.Remove(temp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("removing a stale socket: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: temp, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("opening the control socket: %w", err)
	}
	l.SetUnlinkOnClose(false)
	info, err := place(temp, path, gid)
	if err != nil {
		return nil, errors.Join(err, l.Close(), os.Remove(temp))
	}
	return &Listener{UnixListener: l, path: path, ino: info}, nil
}

// Vacant is an error if another agent answers on the socket.
func Vacant(path string) error {
	c, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return nil
	}
	c.Close()
	return fmt.Errorf("%w %s; stop it first", ErrInUse, path)
}

// makeDir makes the directory open to be entered, whatever the umask: the socket's mode says who may use it.
func makeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("creating the run directory: %w", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return fmt.Errorf("opening the run directory: %w", err)
	}
	return nil
}

func place(temp, path string, gid int) (os.FileInfo, error) {
	if err := os.Chmod(temp, 0o660); err != nil {
		return nil, fmt.Errorf("setting the control socket's mode: %w", err)
	}
	if gid >= 0 {
		if err := os.Chown(temp, -1, gid); err != nil {
			return nil, fmt.Errorf("setting the control socket's group: %w", err)
		}
	}
	info, err := os.Lstat(temp)
	if err != nil {
		return nil, fmt.Errorf("looking at the control socket: %w", err)
	}
	if err := os.Rename(temp, path); err != nil {
		return nil, fmt.Errorf("placing the control socket: %w", err)
	}
	return info, nil
}

// Close stops listening and removes the socket file, unless a successor has put its own in place.
func (l *Listener) Close() error {
	if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.ino) {
		os.Remove(l.path)
	}
	return l.UnixListener.Close()
}

// lookupGroup returns -1 for no group.
func lookupGroup(group string) (int, error) {
	if group == "" {
		return -1, nil
	}
	if gid, err := strconv.Atoi(group); err == nil && gid >= 0 {
		return gid, nil
	}
	g, err := user.LookupGroup(group)
	if err != nil {
		return 0, fmt.Errorf("group %q does not exist; create it or correct `group` in the configuration", group)
	}
	return strconv.Atoi(g.Gid)
}
