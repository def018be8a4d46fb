// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"crypto/ed25519"
	"fmt"

	"github.com/trunkline/trunkline/proxy/history"
)

// HistoryStatus is one history: what was sent to a peer in a group, or received from it.
type HistoryStatus struct {
	Peer string // its name; its fingerprint if it is not in the configuration
	history.LogStats
}

// Histories describes what all histories take, and each.
func (e *Engine) Histories() (history.Usage, []HistoryStatus) {
	names := e.peerNames()
	var list []HistoryStatus
	for _, l := range e.store.Logs() {
		name, ok := names[string(l.Key)]
		if !ok {
			name = fingerprint(ed25519.PublicKey(l.Key))
		}
		list = append(list, HistoryStatus{Peer: name, LogStats: l})
	}
	return e.store.Usage(), list
}

// PurgeHistory forgets what is held of a peer, named as Histories names it (empty: of all), in a group (empty: in all). It returns how many
// histories those were, and how many bytes are free now. Flows go on.
func (e *Engine) PurgeHistory(peer, group string) (histories int, bytes int64, err error) {
	var key []byte
	if peer != "" {
		for k, name := range e.peerNames() {
			if name == peer {
				key = []byte(k)
			}
		}
		if key == nil {
			if key, err = ParseFingerprint(peer); err != nil {
				return 0, 0, fmt.Errorf("no peer is called %s, and it is no fingerprint; see trunkline history", peer)
			}
		}
	}
	histories, bytes = e.store.Purge(key, group)
	e.cfg.Log.Info("histories were purged", "peer", peer, "group", group, "histories", histories, "bytes", bytes)
	return histories, bytes, nil
}

// ParseFingerprint gives the public key of a fingerprint, "ed25519:BASE64".
func ParseFingerprint(s string) ([]byte, error) { return parseKey(s) }

func (e *Engine) peerNames() map[string]string {
	e.mu.Lock()
	defer e.mu.Unlock()
	names := map[string]string{}
	for _, p := range e.peers {
		names[string(p.key)] = p.config().Name
	}
	return names
}
