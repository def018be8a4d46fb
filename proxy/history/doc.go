// SPDX-License-Identifier: Apache-2.0

// Package history keeps what the two ends of a peering both hold: per peer, direction and group a log of the stream.
//
// The sender gives every recorded block a range of positions, in one order for all its legs (connections). The receiver
// stores each block at its positions in whatever order blocks arrive. A later block may then refer to (generation,
// position, length) instead of carrying the bytes.
//
// Both ends hold a ring of bound + margin bytes, and eviction needs no messages. Each block is pinned where the log's head
// stands when its encoding begins; let p be the lowest pin of a block that is not yet acknowledged. The proof: (1) The
// sender records a block only if the head stays within p + margin; a block for which that fails may refer to the log, but
// gets no position in it. (2) A block pinned at q refers only to positions >= q - bound. (3) A ring holds the last bound +
// margin positions below its head, and the receiver's head is never ahead of the sender's. So as long as the block pinned at
// q is not decoded, both heads are <= p + margin <= q + margin, whatever the rings have overwritten lies below q + margin -
// (bound + margin) = q - bound, and all that the block refers to is still there. The same argument lets an encoder compare
// with the ring without a lock, and lets it find the bytes of every unacknowledged block there, to send them again.
//
// One thing may break (1) on purpose: a leg whose peer makes no progress would keep all others from recording. Its
// blocks are then expelled from the log: their bytes move out of the ring and their ranges become void. If they are
// decoded after all, what they refer to may be gone; the receiver asks and gets the bytes raw.
//
// Positions rise for ever and are not begun anew with a generation, so that the blocks of a retired generation stay in the
// ring until they are acknowledged; a generation only says from which position on references are allowed.
package history
