// SPDX-License-Identifier: Apache-2.0

// Package wanproxy has two codecs that deduplicate by segments of fixed size: wanproxy, which does what WANProxy does, and wanproxy2,
// which also refers to segments that overlap.
//
// Both ends keep segments in a cache per peer, direction, group and segment size. The encoder looks for them at every byte by a
// rolling hash, compares bytes before it refers to one, and declares a segment where a whole one's bytes pass without a find.
//
// # Commands
//
// A block's commands are literal bytes and, behind the byte 0xf1 (MAGIC), numbered commands. Hashes are 8 bytes and lengths 2,
// big endian.
//
//	0 ESCAPE                        the byte 0xf1
//	1 EXTRACT segment               it goes into both caches
//	2 REF hash                      the cached segment
//	4 OVER_REF length, hash         the last bytes of a cached segment
//	5 EXT_REF length, bytes, hash   the bytes; the segment that they end goes into both caches, and has the hash
//	6 OVER_EXT length, bytes        the same at the end of a block, without the hash
//	7 ASK hashes                    in an ask's detail
//	8 LEARN hash, segment           in the answer, one for each hash
//
// wanproxy2 uses 4 to 6. EXT_REF costs 12 bytes more than the literals that it carries, which would make a first send worse than
// wanproxy's. So both ends take the overlapping segment into their caches as well where the bytes before a REF came as literals, 16 or
// more, and at the end of a flow; EXT_REF and OVER_EXT are sent where they are cheaper, because they need no escapes. OVER_REF may
// name any segment: after an insertion the bytes before the next hit are the end of the segment that came before it.
//
// # State between blocks
//
// WANProxy itself begins anew with each read, and so live does far worse than on whole files. Here the search goes on over the ends
// of blocks, though each block's bytes are sent at once. In the letter of the commands that is not possible; three fields of
// a payload's header make it so:
//
//   - skip: the first command's segment begins with bytes that were sent already. So a segment that is complete only now can
//     still be declared or referred to;
//   - cut: the last command's segment is there only in part, and the rest, the carry, belongs to the payloads to come. An encoder
//     refers in this way to the segment that came next last time, when the block ends as that one begins;
//   - break: the flow went on otherwise, and only so many bytes of the carry are used.
//
// Of whole files in blocks of 1 MiB it makes what WANProxy makes of them, to 0.2 %. Blocks of 64 KiB cost 3 to 7 % more, since a
// payload has 10 bytes or so beside its commands, and blocks of a few KB more.
//
// # Payloads
//
//	flags     1 byte, see format.go
//	break     uvarint, if flagged, as with what follows
//	skip      uvarint
//	cut       uvarint: bytes of the last command's segment, or of the carry's if there are no commands
//	size      uvarint: bytes of the commands, if they went through the second stage
//	commands  as they are, or the next part of the flow's zstd or deflate stream; or the block's bytes, if that is flagged
//	check     8 bytes, or 4 if the block is shorter than 512: xxhash64 of the block's bytes, mixed with its number
//
// Where a flow is known to be encrypted, or the effort is raw, the block's bytes go as they are and nothing is kept.
//
// # Asks
//
// What the caches drop, they drop by themselves: the segments used least recently. An encoder's cache is a sixteenth smaller than both
// ends have room for, so that the decoder's normally holds all that the encoder refers to. A flow refers to segments that the peer has
// acknowledged, or that the flow itself has declared.
//
// A decoder that lacks segments asks for them by hash, for all that waits at once, and keeps what comes meanwhile, up to a bound. The
// encoder answers with the segments, and with payloads of one byte that let the decoder go on piece by piece. What it no longer has,
// or what did not fit the check or the second stage's stream, it sends again as raw blocks, as all that came later; then both ends begin
// anew behind them. A decoder whose cache has never been full says that it has lost it: then the encoder takes nothing sent so far for
// known. Each block is asked for raw once at most.
package wanproxy
