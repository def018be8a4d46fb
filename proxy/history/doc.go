// SPDX-License-Identifier: Apache-2.0

// Package history keeps what the two ends of a peering both hold: per peer, direction and group a log of the stream.
//
// The sender gives every recorded block a range of positions, in one order for all its legs (connections). The receiver
// stores each block at its positions in whatever order blocks arrive. A later block may then refer to (generation,
// position, length) instead of carrying the bytes.
//
// # Eviction
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
// Three things may break it on purpose. (a) A leg whose peer makes no progress would keep all others from recording. Its
// blocks are then expelled from the log: their bytes move out of the ring and their ranges become void. (b) The logs of an
// agent share one bound (a Store's), so a segment may be given back early, the one used least lately of all logs. A sender
// gives none back that a pin protects, nor any while another leg compares; a receiver may give back any, and tells the peer
// (Receivers.Lacks). (c) An end may have lost what it had. In all three, if a block is decoded that refers to what is gone, the
// receiver asks, gets the bytes raw, and tells the peer what it lacks.
//
// Positions rise for ever and are not begun anew with a generation, so that the blocks of a retired generation stay in the
// ring until they are acknowledged; a generation only says from which position on references are allowed.
//
// # Files
//
// A log on disk is a directory (see disk): the ring, the sender's index, and its state in two files. What may go wrong when,
// and what keeps it from mattering:
//
//   - The process ends at any instant. A range is entered in the file live after its bytes are in the page cache and before
//     it is acknowledged, with a check of its own, so the changes up to the first that is not whole are what was. What was being
//     written then may have overwritten the oldest bytes of the ring: those below head - bound, which nothing refers to, are forgotten.
//     A sender enters a range before its bytes are written: what it had not sent the peer does not report.
//   - The machine ends at any instant. Live is of another run of the kernel and counts for nothing; the file note is
//     durable, and written after the bytes it speaks of. It names a position, ahead, beyond which nothing is written before the next
//     note: that tells which slots of the ring may hold newer bytes, and a sender goes on behind ahead, so that no position is
//     given twice. Segments that were given back since are holes, and are looked for.
//   - The disk is full. Segments are allocated before they are written. When that fails, old ones make room for new ones.
//   - The disk fails, or a file is cut off under its mapping. Reads are guarded against faults, writes are system calls with errors; the log
//     is lost and records nothing more.
//   - A file is damaged or not ours. States have checks and bounds; the index and the bytes are never trusted: the sender compares,
//     and the receiver checks every block.
//
// Why writes do not go through the mapping: a fault for each page costs ten times what the system call does, and what is only
// written does not count as the agent's memory.
//
// Why a sender keeps what is in its ring (held) and not what the peer holds: at hello the peer says that better. What both hold is what
// may be referred to.
package history
