// SPDX-License-Identifier: Apache-2.0

// Package paced takes rates and windows of reservations from sockets, as an iterator over all TCP sockets of the calling
// thread's network namespace.
package paced

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/trunkline/trunkline/bpf"
)

// Sign returns the low byte of every rate that an instance sets, by which its flows are known once it is gone.
func Sign(instance string) uint8 {
	h := fnv.New32a()
	h.Write([]byte(instance))
	return uint8(h.Sum32())
}

// Releaser runs the iterator again and again.
type Releaser struct {
	coll *ebpf.Collection
	iter *link.Iter
}

// Open loads the iterator for bpf.ReleaseEnded, ReleaseAll or ReleaseOrphans; maps are the instance's, nil for orphans.
func Open(what uint32, sign uint8, maps map[string]*ebpf.Map) (*Releaser, error) {
	spec, err := bpf.Release()
	if err != nil {
		return nil, fmt.Errorf("reading the object: %w", err)
	}
	err = errors.Join(spec.Variables["tl_release_what"].Set(what), spec.Variables["tl_release_sign"].Set(uint32(sign)))
	if err != nil {
		return nil, fmt.Errorf("preparing the iterator over sockets: %w", err)
	}
	shared := map[string]*ebpf.Map{}
	for name, s := range spec.Maps {
		switch m := maps[name]; {
		case m != nil:
			shared[name] = m
			s.MaxEntries = m.MaxEntries()
		case !strings.HasPrefix(name, ".") && !used[name]:
			delete(spec.Maps, name) // declared with the others, and of no use here
		}
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: shared})
	if err != nil {
		return nil, fmt.Errorf("loading the iterator over sockets: %w", err)
	}
	it, err := link.AttachIter(link.IterOptions{Program: coll.Programs["tl_release"]})
	if err != nil {
		coll.Close()
		return nil, fmt.Errorf("attaching the iterator over sockets: %w", err)
	}
	return &Releaser{coll, it}, nil
}

// used are the maps that the iterator reads.
var used = map[string]bool{"tl_reserved": true, "tl_reserved_use": true, "tl_reserved_sk": true}

// Run goes over the sockets once.
func (r *Releaser) Run() error {
	f, err := r.iter.Open()
	if err != nil {
		return fmt.Errorf("opening the iterator over sockets: %w", err)
	}
	defer f.Close()
	if _, err := io.Copy(io.Discard, f); err != nil {
		return fmt.Errorf("going over sockets: %w", err)
	}
	return nil
}

// Close unloads the iterator.
func (r *Releaser) Close() error {
	err := r.iter.Close()
	r.coll.Close()
	return err
}

// Once loads the iterator, goes over the sockets, and unloads it.
func Once(what uint32, sign uint8, maps map[string]*ebpf.Map) error {
	r, err := Open(what, sign, maps)
	if err != nil {
		return err
	}
	return errors.Join(r.Run(), r.Close())
}
