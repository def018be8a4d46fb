// SPDX-License-Identifier: Apache-2.0

// Package native is trunkline's native codec: it turns a flow's bytes into blocks that refer to what the peer already holds.
//
// A leg (connection) has one Encoder and one Decoder at each end; blocks of one direction are numbered from 0 and arrive
// reliably and in order. The payload of a block is
//
//	flags       1 byte, see below; its upper three bits are the form of the literals
//	number      uvarint: the block's number; only with flagRestart
//	generation  8 bytes little endian; only with flagPlace
//	position    uvarint: the block's, or if it is not recorded, where the log ends; only with flagPlace
//	gap         uvarint: bytes from the end of the leg's last recorded block, or from position; only with flagGap
//	length      uvarint: raw bytes
//	operations  literal length, then, unless the block is full, reference length and reference; and so on until it is full
//	prime       uvarint: bytes; only with a form that begins a stream or a model
//	literals    all literal bytes of the block, in one of the forms
//	check       8 bytes, or 4 if the block is shorter than 512 bytes and no restart
//
// A reference is a zigzag varint: the distance from the end of the leg's last reference, or, with flagPlace, from
// that position. Without flagOps the block is all literals, or, if it has none, a single reference. The
// check is xxhash64 of the raw bytes, mixed with the block's number and place, so that a block that is put in the wrong
// place is found out too.
//
// Literals go through one compressed stream, zstd or raw deflate, which is flushed with each block. Of a deflate stream the four
// bytes that end each flush are left out, of a zstd stream, with formShort, the header of the only block. With zstd, up to 512
// bytes of literals go through a model of the flow's small blocks instead, which makes half as much of a message. Stream and model
// begin anew at the sender's will: because they were given up while the flow was idle, or because more or less effort is to be
// spent. Then they are primed with the last bytes of the flow that were literals, as many as prime says, which both ends keep: 32 KiB
// at most, 1 KiB for a model. In zstd's terms they are a raw dictionary, number 1, in deflate's the preset window. A zstd
// stream looks back 8 MiB at most.
//
// A decoder that cannot make a block asks for it. It drops all that follows until the block comes again as a restart:
// raw, with nothing referred to. The encoder sends all later blocks again in this way, and then goes on as usual; the
// compressed stream and the model begin anew, and no literals before that prime them.
package native
