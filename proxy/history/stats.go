// SPDX-License-Identifier: Apache-2.0

package history

// Stats describes a log.
type Stats struct {
	Generation  uint64 // 0 in a receiver that has got nothing yet
	Head        uint64 // position behind the newest byte
	BoundBytes  int64  // how far references may reach back
	HeldBytes   int64  // allocated for the ring: in memory, or on disk
	MemoryBytes int64  // of them, in memory
	DiskBytes   int64  // of files, the index included; 0: in memory
	IndexBytes  int64  // of the anchor index and the interval sets
	KnownBytes  int64  // sender: bytes that may be referred to now; receiver: bytes present
	Problem     string // why it is not kept, or nothing is recorded; empty: all is well
}

// stats gives what both ends have; the lock is held.
func (l *log) stats() Stats {
	st := Stats{Generation: l.generation, Head: l.head, BoundBytes: int64(l.own), HeldBytes: l.ring.held.Load()}
	st.MemoryBytes = st.HeldBytes
	if l.disk != nil {
		st.MemoryBytes = l.ring.resident.Load()
		st.DiskBytes = st.HeldBytes + l.disk.charged
		if l.table != nil {
			st.DiskBytes += l.table.bytes()
		}
		if l.disk.err != nil {
			st.Problem = l.disk.err.Error()
		}
	}
	if l.broken != nil {
		st.Problem = l.broken.Error()
	}
	return st
}
