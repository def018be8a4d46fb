// SPDX-License-Identifier: Apache-2.0

// Package estimate is `trunkline estimate`: what deduplication would save on a user's own files and captured traffic. Everything
// goes through an encoder and a decoder in this process, with one history, and every byte is compared.
package estimate

import (
	"errors"
	"fmt"
	"io"

	"github.com/trunkline/trunkline/cmd/internal/bench"
	"github.com/trunkline/trunkline/cmd/internal/twoends"
	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// Options are what the command line says.
type Options struct {
	Paths   []string // files, directories, captures; "-": standard input
	Spec    codec.Spec
	History int64 // what each end remembers, in bytes
	Plain   bool  // captures are files like any other
	Stdin   io.Reader
	Stderr  io.Writer // progress
}

// estimator is one run.
type estimator struct {
	Options
	say    *bench.Progress
	up     *twoends.Peering // what clients send, and files
	down   *twoends.Peering // what servers send
	result *Result
	buffer []byte // of the blocks that files are cut into
	frames []byte
}

// Run reads everything that the options name and tells what would have been sent.
func Run(o Options) (*Result, error) {
	up, err := twoends.New(o.History)
	if err != nil {
		return nil, err
	}
	down, err := twoends.New(o.History)
	if err != nil {
		return nil, err
	}
	e := &estimator{Options: o, up: up, down: down}
	e.result = &Result{Codec: o.Spec.String(), HistoryBytes: o.History}
	e.say = bench.NewProgress(o.Stderr)
	defer e.say.Close()
	list, err := sources(o.Paths)
	if err != nil {
		return nil, err
	}
	total := int64(0)
	for _, s := range list {
		total += s.size
	}
	done := int64(0)
	for _, s := range list {
		if err := e.one(s, done, total); err != nil {
			return nil, err
		}
		done += s.size
	}
	e.result.finish()
	if e.result.Total.RawBytes == 0 {
		return nil, errors.New("there are no bytes in " + plural(len(list), "file"))
	}
	return e.result, nil
}

// one reads one file, directory entry or stream.
func (e *estimator) one(s source, done, total int64) (err error) {
	in, err := s.open(e.Stdin)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	r := newCounted(in, func(read int64) {
		e.say.Step(int(min(done+read, total)>>10), int(total>>10), "%s", s.path)
	})
	kind, err := r.kind(s, e.Plain)
	if err != nil {
		return err
	}
	switch {
	case kind == kindEmpty && s.inside:
		e.result.Empty++
		return nil
	case kind == kindEmpty:
		return fmt.Errorf("%s is empty", s.path)
	case kind == kindPlain:
		return e.file(s, r)
	}
	return e.capture(s, r, kind)
}

// file sends a file as a flow of its own.
func (e *estimator) file(s source, r io.Reader) error {
	bound := e.History
	if s.size > 0 {
		bound = min(bound, max(s.size, leastProbe))
	}
	l, err := newLane(e.up, e.Spec, bound, e.frames)
	if err != nil {
		return err
	}
	defer func() { e.frames = l.frames }()
	if e.buffer == nil {
		e.buffer = make([]byte, codec.MaxBlock)
	}
	for {
		n, err := io.ReadFull(r, e.buffer)
		if n > 0 {
			if err := l.send(e.buffer[:n]); err != nil {
				l.end()
				return fmt.Errorf("%s: %w", s.path, err)
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			l.end()
			return fmt.Errorf("reading %s: %w", s.path, err)
		}
	}
	sums, why := l.end()
	e.result.addFile(File{Path: s.path, Sums: sums, Reason: why})
	return nil
}

const leastProbe = 1 << 20 // bytes
