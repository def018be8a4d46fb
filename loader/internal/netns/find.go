// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ErrGone says that a namespace has ended, and everything in it.
var ErrGone = errors.New("the network namespace is gone")

// initPIDNamespace is how the namespace in which every process is seen is called, on every kernel.
const initPIDNamespace = "pid:[4026531836]"

// Find returns a path by which another namespace of this boot can be entered: a name, a process in it, or a descriptor of
// it. ErrGone only if all of them could be looked at and there is none; "" and another error if that cannot be known.
func Find(id ID) (string, error) {
	s := search{id: id, seen: map[string]bool{}}
	if ns, err := os.Readlink("/proc/self/ns/pid"); err != nil || ns != initPIDNamespace {
		s.blind = fmt.Errorf("not every process is seen from here")
	}
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return "", err
	}
	for _, look := range []func(proc string){s.names, s.process, s.descriptors} {
		for _, p := range procs {
			if _, err := strconv.Atoi(p.Name()); err == nil && s.found == "" {
				look(filepath.Join("/proc", p.Name()))
			}
		}
	}
	switch {
	case s.found != "":
		return s.found, nil
	case s.blind != nil:
		return "", s.blind
	}
	return "", ErrGone
}

// search keeps what was found, and why nothing found would not mean that there is nothing.
type search struct {
	id    ID
	seen  map[string]bool // mount namespaces
	found string
	blind error
}

// try takes a path whose file has the namespace's number, if it has its cookie too.
func (s *search) try(path string) {
	cookie, err := cookieOf(path)
	switch {
	case err != nil && !gone(err):
		s.blind = fmt.Errorf("entering %s: %w", path, err)
	case err == nil && cookie == s.id.Cookie:
		s.found = path
	}
}

func (s *search) cannot(err error) {
	if err != nil && !gone(err) && s.blind == nil {
		s.blind = err
	}
}

// names looks through the mounts that a process sees, each set of them once.
func (s *search) names(proc string) {
	mnt, err := os.Readlink(proc + "/ns/mnt")
	if err != nil || s.seen[mnt] {
		s.cannot(err)
		return
	}
	s.seen[mnt] = true
	b, err := os.ReadFile(proc + "/mountinfo")
	s.cannot(err)
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 && f[3] == s.id.String() && s.found == "" {
			s.try(s.visible(proc, f[4]))
		}
	}
}

// visible is a path of a process's as it is reached from here.
func (s *search) visible(proc, path string) string {
	own, _ := os.Readlink("/proc/self/ns/mnt")
	if mnt, err := os.Readlink(proc + "/ns/mnt"); err == nil && mnt == own {
		return path
	}
	return proc + "/root" + path
}

func (s *search) process(proc string) { s.file(proc + "/ns/net") }

func (s *search) descriptors(proc string) {
	fds, err := os.ReadDir(proc + "/fd")
	s.cannot(err)
	for _, fd := range fds {
		if s.found == "" {
			s.file(filepath.Join(proc, "fd", fd.Name()))
		}
	}
}

func (s *search) file(path string) {
	to, err := os.Readlink(path)
	s.cannot(err)
	if to == s.id.String() {
		s.try(path)
	}
}
