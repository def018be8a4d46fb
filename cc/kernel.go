// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

const (
	opsType = "tcp_congestion_ops"
	// linkFlag makes a map one that a link registers (BPF_F_LINK, Linux 6.4). Without it writing the map registers.
	linkFlag = 0x2000
	// inUse is the state of a map that registers by itself while it does. It is the second word of its value.
	inUse = 1
)

// Available returns the names of the congestion controls that the kernel offers now, ours among them.
func Available() ([]string, error) {
	b, err := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
	if err != nil {
		return nil, fmt.Errorf("asking for congestion controls: %w", err)
	}
	return strings.Fields(string(b)), nil
}

// spec reads an algorithm's object and leaves out the callbacks that this kernel does not have.
func (a Algorithm) spec(flag uint32) (*ebpf.CollectionSpec, error) {
	spec, err := a.load()
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", a.Name, err)
	}
	m := spec.Maps[a.Name]
	if m == nil {
		return nil, fmt.Errorf("the object of %s has no congestion control of that name", a.Name)
	}
	m.Flags = m.Flags&^linkFlag | flag
	if err := errors.Join(setTick(spec), setLayout(a, spec)); err != nil {
		return nil, fmt.Errorf("preparing %s: %w", a.Name, err)
	}
	has, err := callbacks()
	if err != nil {
		return nil, err
	}
	for name, p := range spec.Programs {
		if p.Type != ebpf.StructOps {
			continue
		}
		if _, member, _ := strings.Cut(p.AttachTo, ":"); !has[member] {
			delete(spec.Programs, name)
		}
	}
	return spec, nil
}

// setTick tells an algorithm that asks for it how long a tick of the kernel's clock is.
func setTick(spec *ebpf.CollectionSpec) error {
	v := spec.Variables["tl_tick_us"]
	if v == nil {
		return nil
	}
	tick, err := tickMicroseconds()
	if err != nil {
		return err
	}
	return v.Set(tick)
}

// tickMicroseconds returns how long a tick of the kernel's clock (a jiffy) is.
func tickMicroseconds() (uint32, error) {
	var res unix.Timespec // of the coarse clock, which goes by ticks
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &res); err != nil {
		return 0, fmt.Errorf("asking for the kernel's tick: %w", err)
	}
	return uint32(res.Nano() / 1000), nil
}

// callbacks returns the members of the kernel's struct tcp_congestion_ops.
func callbacks() (map[string]bool, error) {
	types, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, fmt.Errorf("reading the kernel's types: %w", err)
	}
	var ops *btf.Struct
	if err := types.TypeByName(opsType, &ops); err != nil {
		return nil, fmt.Errorf("looking for %s in the kernel's types: %w", opsType, err)
	}
	has := map[string]bool{}
	for _, m := range ops.Members {
		has[m.Name] = true
	}
	return has, nil
}

// findMap looks for a map by which the name is registered without a link. It returns nil if there is none.
func findMap(name string) (*ebpf.Map, error) {
	for id := ebpf.MapID(0); ; {
		next, err := ebpf.MapGetNextID(id)
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("going through the kernel's maps: %w", err)
		}
		id = next
		m, err := ebpf.NewMapFromID(id)
		if errors.Is(err, os.ErrNotExist) { // gone meanwhile
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("opening map %d: %w", id, err)
		}
		if registers(m, name) {
			return m, nil
		}
		m.Close()
	}
}

// registers says whether a map registers the name by itself.
func registers(m *ebpf.Map, name string) bool {
	if m.Type() != ebpf.StructOpsMap {
		return false
	}
	info, err := m.Info()
	if err != nil || info.Name != name {
		return false
	}
	value, err := m.LookupBytes(uint32(0))
	return err == nil && len(value) > 8 && binary.NativeEndian.Uint32(value[4:]) == inUse
}

// findLink looks for a link that keeps the name registered, whoever made it. It returns nil if there is none.
func findLink(name string) (link.Link, *ebpf.Map, error) {
	var it link.Iterator
	defer it.Close()
	for it.Next() {
		m, err := linkedMap(it.Link)
		if err != nil || m == nil {
			continue // not one of struct_ops, or gone meanwhile
		}
		if info, err := m.Info(); err == nil && info.Name == name {
			return it.Take(), m, nil
		}
		m.Close()
	}
	if err := it.Err(); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, fmt.Errorf("going through the kernel's links: %w", err)
	}
	return nil, nil, nil
}

// linkedMap returns the map that a link of struct_ops holds, nil for a link of another kind. The library does not tell.
func linkedMap(l link.Link) (*ebpf.Map, error) {
	info, err := l.Info()
	if err != nil || info.Type != link.StructOpsType {
		return nil, err
	}
	fd, ok := l.(interface{ FD() int })
	if !ok {
		return nil, nil
	}
	var raw struct { // struct bpf_link_info
		kind, id, prog, _ uint32
		mapID             uint32
		_                 [60]byte
	}
	attr := struct { // of BPF_OBJ_GET_INFO_BY_FD
		fd, size uint32
		info     uint64
	}{uint32(fd.FD()), uint32(unsafe.Sizeof(raw)), uint64(uintptr(unsafe.Pointer(&raw)))}
	_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_OBJ_GET_INFO_BY_FD, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	if errno != 0 {
		return nil, fmt.Errorf("asking for a link's map: %w", errno)
	}
	return ebpf.NewMapFromID(ebpf.MapID(raw.mapID))
}

// tags returns what identifies the programs of a registered map, sorted: equal code has equal tags on one kernel. The kernel
// shows the callbacks of the map's value as numbers of programs.
func tags(m *ebpf.Map) ([]string, error) {
	value, err := m.LookupBytes(uint32(0))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", m, err)
	}
	var found []string
	for ; len(value) >= 8; value = value[8:] {
		word := binary.NativeEndian.Uint64(value)
		if word == 0 || word > 1<<31 {
			continue
		}
		p, err := ebpf.NewProgramFromID(ebpf.ProgramID(word))
		if err != nil {
			continue // not the number of a program
		}
		if info, err := p.Info(); err == nil && info.Type == ebpf.StructOps {
			found = append(found, info.Tag)
		}
		p.Close()
	}
	slices.Sort(found)
	return found, nil
}

// tagsOf returns the same of programs that are loaded.
func tagsOf(programs map[string]*ebpf.Program) ([]string, error) {
	var found []string
	for name, p := range programs {
		info, err := p.Info()
		if err != nil {
			return nil, fmt.Errorf("asking for program %s: %w", name, err)
		}
		if info.Type == ebpf.StructOps {
			found = append(found, info.Tag)
		}
	}
	slices.Sort(found)
	return found, nil
}

// unregister takes a name away that a map registers by itself, and waits until it is gone, which takes Linux 6.1 a moment.
// Flows that use it keep it.
func unregister(m *ebpf.Map, name string) error {
	if err := m.Delete(uint32(0)); err != nil && !errors.Is(err, unix.EINPROGRESS) && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("unregistering %s: %w", name, err)
	}
	return waitGone(name)
}

func waitGone(name string) error {
	const patience = 5 * time.Second
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		names, err := Available()
		if err != nil || !slices.Contains(names, name) {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s is still there %v after it was unregistered", name, patience)
		}
	}
}
