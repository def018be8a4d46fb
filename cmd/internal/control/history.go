// SPDX-License-Identifier: Apache-2.0

package control

// History is what all histories of an agent take. Their bounds are exact; indexes come on top of memory.
type History struct {
	MemoryBytes int64  `json:"memory_bytes"`
	MemoryLimit int64  `json:"memory_limit_bytes"`
	IndexBytes  int64  `json:"index_bytes"`
	DiskBytes   int64  `json:"disk_bytes"`
	DiskLimit   int64  `json:"disk_limit_bytes"`    // 0: histories are in memory
	Directory   string `json:"directory,omitempty"` // of their files
}

// Histories are all histories of an agent.
type Histories struct {
	History
	Groups []GroupHistory `json:"groups"`
}

// GroupHistory is the history of one group in one direction with a peer.
type GroupHistory struct {
	Peer       string `json:"peer"`      // its fingerprint, if it is not in the configuration
	Direction  string `json:"direction"` // sent or received
	Group      string `json:"group"`
	Held       int64  `json:"held_bytes"`  // allocated: in memory, or on disk
	Bound      int64  `json:"bound_bytes"` // how far references may reach back
	Memory     int64  `json:"memory_bytes"`
	Disk       int64  `json:"disk_bytes"`
	Index      int64  `json:"index_bytes"`
	Known      int64  `json:"known_bytes"` // sent: what may be referred to; received: what is there
	Generation uint64 `json:"generation"`
	Problem    string `json:"problem,omitempty"` // why it is not kept, or nothing is recorded
}

// Purged is what a purge did.
type Purged struct {
	Histories int   `json:"histories"`
	Bytes     int64 `json:"bytes"` // free now
}
