// SPDX-License-Identifier: Apache-2.0

// Package insides reads what congestion controls keep for each socket, which the kernel's own interfaces do not show of
// struct_ops programs.
package insides

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

//go:generate go tool bpf2go -target bpfel -type tl_inside -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu" insides insides.c

// Socket is what one TCP socket of the network namespace has.
type Socket struct {
	Cookie   uint64 // 0: none yet, so no program has asked for it
	Name     string // of the congestion control
	Cwnd     uint32 // packets
	SSThresh uint32 // packets, 0x7fffffff: none yet
	State    []byte // the algorithm's own
}

// Reader reads sockets again and again.
type Reader struct {
	objs insidesObjects
	iter *link.Iter
}

// Open loads the reader; oursOnly leaves out sockets with other congestion controls than tl_....
func Open(oursOnly bool) (*Reader, error) {
	spec, err := loadInsides()
	if err != nil {
		return nil, fmt.Errorf("reading the object: %w", err)
	}
	if err := spec.Variables["tl_ours_only"].Set(oursOnly); err != nil {
		return nil, fmt.Errorf("preparing the reader of sockets: %w", err)
	}
	r := &Reader{}
	if err := spec.LoadAndAssign(&r.objs, &ebpf.CollectionOptions{}); err != nil {
		return nil, fmt.Errorf("loading the reader of sockets: %w", err)
	}
	if r.iter, err = link.AttachIter(link.IterOptions{Program: r.objs.TlInsides}); err != nil {
		return nil, errors.Join(fmt.Errorf("attaching the reader of sockets: %w", err), r.objs.Close())
	}
	return r, nil
}

// Close unloads the reader.
func (r *Reader) Close() error { return errors.Join(r.iter.Close(), r.objs.Close()) }

// Read returns the sockets of the calling thread's network namespace, listeners left out.
func (r *Reader) Read() ([]Socket, error) {
	f, err := r.iter.Open()
	if err != nil {
		return nil, fmt.Errorf("opening the reader of sockets: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("reading sockets: %w", err)
	}
	const size = int(unsafe.Sizeof(insidesTlInside{}))
	var sockets []Socket
	for ; len(b) >= size; b = b[size:] {
		var in insidesTlInside
		if _, err := binary.Decode(b, binary.NativeEndian, &in); err != nil {
			return nil, fmt.Errorf("decoding a socket: %w", err)
		}
		sockets = append(sockets, Socket{Cookie: in.Cookie, Name: text(in.Name), Cwnd: in.Cwnd, SSThresh: in.Ssthresh, State: in.State[:]})
	}
	return sockets, nil
}

func text(c [16]int8) string {
	b := make([]byte, 0, len(c))
	for _, x := range c {
		b = append(b, byte(x))
	}
	name, _, _ := bytes.Cut(b, []byte{0})
	return string(name)
}
