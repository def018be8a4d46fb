// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"github.com/trunkline/trunkline/cmd/internal/control"
	"github.com/trunkline/trunkline/proxy/history"
)

// History gives the engine's view of its histories.
func (a *agent) History() (control.Histories, error) {
	usage, logs := a.engine.Histories()
	h := control.Histories{History: historyUsage(usage), Groups: []control.GroupHistory{}}
	for _, l := range logs {
		direction := "received"
		if l.Sent {
			direction = "sent"
		}
		h.Groups = append(h.Groups, control.GroupHistory{
			Peer: l.Peer, Direction: direction, Group: l.Group, Held: l.HeldBytes, Bound: l.BoundBytes, Memory: l.MemoryBytes,
			Disk: l.DiskBytes, Index: l.IndexBytes, Known: l.KnownBytes, Generation: l.Generation, Problem: l.Problem,
		})
	}
	return h, nil
}

func historyUsage(u history.Usage) control.History {
	return control.History{MemoryBytes: u.MemoryBytes, MemoryLimit: u.MemoryLimit, IndexBytes: u.IndexBytes, DiskBytes: u.DiskBytes,
		DiskLimit: u.DiskLimit, Directory: u.Directory}
}

// PurgeHistory forgets histories.
func (a *agent) PurgeHistory(peer, group string) (control.Purged, error) {
	n, bytes, err := a.engine.PurgeHistory(peer, group)
	return control.Purged{Histories: n, Bytes: bytes}, err
}
