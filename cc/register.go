// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// ErrUnknown says that a name is not in the catalogue.
var ErrUnknown = errors.New("not one of trunkline's congestion controls")

// Recorder writes down what outlives the process, before it is made, so that it is undone after any end.
type Recorder interface {
	// Record notes that a name is about to be registered for good, guarded by a lock file. It is on disk when Record
	// returns. Remove undoes it; forget takes the note out.
	Record(name, lockFile string) (forget func() error, err error)
}

// Options says how to register.
type Options struct {
	Mode     Mode
	Recorder Recorder // must be given where registrations outlive the process
	LockDir  string   // must exist; "" is DefaultLockDir, which all processes on a host share
}

// Registration is an algorithm that flows can have while it is held, by this process or by others. It must stay reachable
// until Close: a link goes with its last reference. Flows that have it keep
// it to their end, even if the name is gone and another version has been registered since.
type Registration struct {
	Name   string
	Mode   Mode
	Shared bool // someone else had registered it
	Other  bool // and it is another version than this program's

	link   link.Link    // ByLink
	lock   *lockFile    // ByMap
	forget func() error // ByMap
	unheld bool         // someone else's, and the kernel does not let us hold it
}

// ours begins the name of everything that trunkline puts into the kernel.
const ours = "tl_"

// attempts bounds how often a registration that vanishes just when it is joined is looked for.
const attempts = 10

// Register has the kernel offer an algorithm of the catalogue. One that another process has registered is shared, and goes
// with its last user. The error is ErrUnknown, an *Unsupported, or says what failed.
func Register(name string, o Options) (*Registration, error) {
	a, ok := Lookup(name)
	if !ok {
		return nil, fmt.Errorf("%s: %w", name, ErrUnknown)
	}
	if o.LockDir == "" {
		o.LockDir = DefaultLockDir
	}
	for range attempts {
		r, err := register(a, o)
		if !errors.Is(err, errVanished) {
			return r, err
		}
	}
	return nil, fmt.Errorf("registering %s: others register and unregister it all the time", name)
}

// errVanished says that what stood in the way is gone: try again.
var errVanished = errors.New("it is gone meanwhile")

func register(a Algorithm, o Options) (*Registration, error) {
	if o.Mode == ByMap {
		return registerByMap(a, o)
	}
	r, err := registerByLink(a, o)
	if err != nil && o.Mode == Any && lacksLinks(err) {
		return registerByMap(a, o)
	}
	return r, err
}

// registerByLink makes a link, or holds the one that is there. Nothing of it outlives its last holder.
func registerByLink(a Algorithm, o Options) (*Registration, error) {
	coll, err := load(a, linkFlag)
	if err != nil {
		return nil, err
	}
	defer coll.Close()
	l, err := link.AttachStructOps(link.StructOpsOptions{Map: coll.Maps[a.Name]})
	if err == nil {
		return &Registration{Name: a.Name, Mode: ByLink, link: l}, nil
	}
	if !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("registering %s: %w", a.Name, err)
	}
	l, m, err := findLink(a.Name)
	switch {
	case errors.Is(err, unix.EPERM): // reading objects by number is not given to everyone
		return &Registration{Name: a.Name, Mode: ByLink, Shared: true, unheld: true}, nil
	case err != nil:
		return nil, err
	case l == nil:
		return joinByMap(a, o)
	}
	defer m.Close()
	return &Registration{Name: a.Name, Mode: ByLink, Shared: true, Other: differs(m, coll.Programs), link: l}, nil
}

// joinByMap shares a registration without a link that stands in the way of one with, or takes away what a killed process
// has left of it.
func joinByMap(a Algorithm, o Options) (*Registration, error) {
	m, err := findMap(a.Name)
	if err != nil {
		return nil, err
	}
	if m == nil {
		return nil, vanishedOrForeign(a.Name)
	}
	m.Close()
	return registerByMap(a, o)
}

// vanishedOrForeign tells what has gone meanwhile from what is not a struct_ops program at all.
func vanishedOrForeign(name string) error {
	names, err := Available()
	if err != nil {
		return err
	}
	if slices.Contains(names, name) {
		return fmt.Errorf("%s is taken by a congestion control that is none of trunkline's; unload it", name)
	}
	return errVanished
}

// load has the kernel check an algorithm. Without linkFlag this registers it.
func load(a Algorithm, flag uint32) (*ebpf.Collection, error) {
	spec, err := a.spec(flag)
	if err != nil {
		return nil, unsupported(err)
	}
	coll, err := ebpf.NewCollection(spec)
	switch {
	case err == nil:
		return coll, nil
	case errors.Is(err, unix.EEXIST), flag != 0 && lacksLinks(err):
		return nil, fmt.Errorf("registering %s: %w", a.Name, err)
	}
	return nil, unsupported(fmt.Errorf("loading %s: %w", a.Name, err))
}

// registerByMap registers for good, or joins those who use the name already.
func registerByMap(a Algorithm, o Options) (*Registration, error) {
	if o.Recorder == nil {
		return nil, &Unsupported{Why: "a registration would outlive the agent here, and there is no ledger to write it down in",
			Remedy: "give the agent a state directory, or use Linux 6.4 or later"}
	}
	lock, err := openLock(lockPath(o.LockDir, a.Name))
	if err != nil {
		return nil, err
	}
	r := &Registration{Name: a.Name, Mode: ByMap, lock: lock}
	if err := r.joinOrMake(a, o); err != nil {
		return nil, errors.Join(err, giveUp(lock, a.Name))
	}
	return r, nil
}

// giveUp ends a lock after a failure, and takes the file away if it stands for nothing: nobody else uses the name, and nothing is
// registered under it. It needs the guard.
func giveUp(lock *lockFile, name string) error {
	alone, err := lock.alone()
	if err != nil {
		return errors.Join(err, lock.drop(false))
	}
	m, err := findMap(name)
	if m != nil {
		err = m.Close()
	}
	return errors.Join(err, lock.drop(alone && m == nil && err == nil))
}

// joinOrMake needs the guard, and lets it go.
func (r *Registration) joinOrMake(a Algorithm, o Options) error {
	alone, err := r.lock.alone()
	if err != nil {
		return err
	}
	old, err := findMap(a.Name)
	if err != nil {
		return err
	}
	if old != nil {
		defer old.Close()
	}
	if r.forget, err = o.Recorder.Record(a.Name, r.lock.path); err != nil {
		return err
	}
	switch {
	case old != nil && !alone:
		r.Shared = true
		r.Other, err = older(a, old)
	case old != nil: // left by a process that was killed
		err = unregister(old, a.Name)
		fallthrough
	default:
		if err == nil {
			err = makeByMap(a)
		}
	}
	if err == nil {
		err = r.lock.use()
	}
	if err != nil {
		return errors.Join(err, r.forget())
	}
	return r.lock.release()
}

func makeByMap(a Algorithm) error {
	coll, err := load(a, 0)
	if errors.Is(err, unix.EEXIST) {
		l, m, ferr := findLink(a.Name)
		if ferr != nil || l == nil {
			return errors.Join(ferr, vanishedOrForeign(a.Name))
		}
		m.Close()
		return errors.Join(fmt.Errorf("registering %s: it is registered by a link", a.Name), l.Close())
	}
	if err != nil {
		return err
	}
	coll.Close() // the registration holds the map
	return nil
}

// older says whether a registered map has other programs than the algorithm has here.
func older(a Algorithm, m *ebpf.Map) (bool, error) {
	spec, err := a.spec(0)
	if err != nil {
		return false, unsupported(err)
	}
	delete(spec.Maps, a.Name)
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return false, unsupported(fmt.Errorf("loading %s: %w", a.Name, err))
	}
	defer coll.Close()
	return differs(m, coll.Programs), nil
}

// differs says whether a registered map has other programs. What cannot be read counts as the same.
func differs(m *ebpf.Map, programs map[string]*ebpf.Program) bool {
	theirs, err1 := tags(m)
	ours, err2 := tagsOf(programs)
	return err1 == nil && err2 == nil && !slices.Equal(theirs, ours)
}

// Close needs the name no more. If this was its last user the kernel offers it no more when Close returns.
func (r *Registration) Close() error {
	switch {
	case r.unheld:
		return nil
	case r.Mode == ByLink:
		return r.link.Close()
	}
	if err := r.lock.guard(); err != nil {
		return err
	}
	err := leave(r.lock, r.Name)
	if err != nil {
		return err // it stays written down
	}
	return r.forget()
}

// leave takes the name away if nobody else uses it. It needs the guard, and ends the lock.
func leave(lock *lockFile, name string) error {
	alone, err := lock.alone()
	if err == nil && alone {
		err = removeMap(name)
	}
	return errors.Join(err, lock.drop(err == nil && alone))
}

func removeMap(name string) error {
	m, err := findMap(name)
	if err != nil || m == nil {
		return err
	}
	defer m.Close()
	return unregister(m, name)
}

// Outcome says what came of Remove.
type Outcome string

// The outcomes.
const (
	Removed Outcome = "removed" // the kernel offers the name no more
	Absent  Outcome = "absent"  // it did not
	InUse   Outcome = "in-use"  // others use it; the last of them takes it away
)

// Remove undoes what a Recorder wrote down, after the process that registered the name has ended.
func Remove(name, lockFile string) (Outcome, error) {
	if !strings.HasPrefix(name, ours) { // it may be another version's, so not in the catalogue
		return "", fmt.Errorf("%s: %w", name, ErrUnknown)
	}
	if _, err := os.Stat(lockFile); errors.Is(err, os.ErrNotExist) {
		if m, err := findMap(name); m == nil {
			return Absent, err
		} else if err := m.Close(); err != nil {
			return "", err
		}
	}
	lock, err := openLock(lockFile)
	if err != nil {
		return "", err
	}
	alone, err := lock.alone()
	if err != nil {
		return "", errors.Join(err, lock.drop(false))
	}
	if !alone {
		return InUse, lock.drop(false)
	}
	m, err := findMap(name)
	if err != nil {
		return "", errors.Join(err, lock.drop(false))
	}
	if m == nil {
		return Absent, lock.drop(true)
	}
	defer m.Close()
	if err := unregister(m, name); err != nil {
		return "", errors.Join(err, lock.drop(false))
	}
	return Removed, lock.drop(true)
}
