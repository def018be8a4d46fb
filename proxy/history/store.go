// SPDX-License-Identifier: Apache-2.0

package history

import (
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Options say where an agent's histories are and how much they take.
type Options struct {
	MemoryBytes int64         // of all histories together; with a directory, of what is mapped in
	DiskBytes   int64         // of all files together, with a directory
	Directory   string        // empty: in memory
	Log         *slog.Logger  // nil: none
	SyncEvery   time.Duration // how often files are brought to the disk; 0: 5 s
}

// A Store has all histories of an agent, of all peers. It is safe for concurrent use.
type Store struct {
	opt   Options
	bound int64 // of each log
	pool  *pool
	cache *cache // nil: in memory
	boot  bootID
	lock  *os.File
	kicks chan struct{}
	stop  chan struct{}
	done  sync.WaitGroup

	mu       sync.Mutex
	problems map[string]string // by what they are about
	peers    map[string]*peer  // by key
	closed   bool
}

// peer is what there is of one peer.
type peer struct {
	key       []byte
	senders   *Senders
	receivers *Receivers
}

// Open makes a store. With a directory it takes that for itself (ErrInUse) and goes on with all that is kept there; nothing is
// read but what the files of each log say about it. A directory that cannot be used is a problem that Usage tells, and histories are in memory then.
func Open(o Options) (*Store, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.SyncEvery == 0 {
		o.SyncEvery = 5 * time.Second
	}
	s := &Store{opt: o, boot: thisBoot(), kicks: make(chan struct{}, 1), stop: make(chan struct{}),
		problems: map[string]string{}, peers: map[string]*peer{}}
	if o.Directory != "" {
		err := s.openDirectory()
		if errors.Is(err, ErrInUse) {
			return nil, fmt.Errorf("histories: %w; give each agent a state_dir or history directory of its own", err)
		}
		if err != nil {
			s.warn("histories are in memory only", "directory", o.Directory, "err", err)
			s.problems["directory"] = "histories are in memory only: " + err.Error()
		}
	}
	if s.lock == nil {
		s.pool, s.bound = &pool{limit: o.MemoryBytes}, boundOf(o.MemoryBytes)
		return s, nil
	}
	s.pool, s.cache = &pool{limit: o.DiskBytes}, &cache{limit: o.MemoryBytes}
	s.bound = boundOf(o.DiskBytes - o.DiskBytes/64)
	s.resume()
	s.pool.reserve(0)
	s.done.Go(s.keepSyncing)
	return s, nil
}

func (s *Store) openDirectory() error {
	lock, err := lockDir(s.opt.Directory)
	if err != nil {
		return err
	}
	if err := probe(s.opt.Directory); err != nil {
		lock.Close()
		return err
	}
	s.lock = lock
	return nil
}

// resume goes on with the logs that are there. What is none is left alone.
func (s *Store) resume() {
	dirs, err := os.ReadDir(s.opt.Directory)
	if err != nil {
		s.warn("histories cannot be read", "directory", s.opt.Directory, "err", err)
		return
	}
	for _, d := range dirs {
		if key, err := hex.DecodeString(d.Name()); err == nil && len(key) > 0 && d.IsDir() {
			s.Peer(key)
		}
	}
}

// Peer gives the histories of a peer by its public key, what is kept of them included.
func (s *Store) Peer(key []byte) (*Senders, *Receivers) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.peers[string(key)]; p != nil {
		return p.senders, p.receivers
	}
	p := &peer{key: append([]byte(nil), key...), senders: NewSenders(s.bound), receivers: NewReceivers(s.bound)}
	p.senders.store, p.receivers.store = s, s
	s.peers[string(key)] = p
	if s.cache == nil {
		return p.senders, p.receivers
	}
	dir := peerDir(s.opt.Directory, key)
	p.senders.place, p.receivers.place = place{dir: dir, dirs: sent}, place{dir: dir, dirs: received}
	err := os.Mkdir(dir, 0o700)
	if err == nil || errors.Is(err, os.ErrExist) {
		p.receivers.epoch, err = epochOf(dir)
	}
	if err != nil {
		s.warn("a peer's histories are not kept", "directory", dir, "err", err)
	}
	p.resume(s, dir)
	return p.senders, p.receivers
}

// resume opens the logs in a peer's directory, so that they count, and the peer is told of them.
func (p *peer) resume(s *Store, dir string) {
	dirs, err := os.ReadDir(dir)
	if err != nil {
		return // said already
	}
	for _, d := range dirs {
		if !d.IsDir() {
			continue
		}
		path := filepath.Join(dir, d.Name())
		have, _, err := load(path, s.boot)
		toPeer := have.direction == sent
		n := len(p.receivers.logs)
		if toPeer {
			n = len(p.senders.groups)
		}
		switch {
		case err != nil:
			s.warn("a history was damaged and is dropped", "directory", path, "err", err)
			removeLog(path)
		case len(have.held) == 0 || n >= maxGroups || place.group(place{dir: dir, dirs: have.direction}, have.group).dir != path:
			removeLog(path) // nothing is in it
		case toPeer:
			p.senders.Group(have.group)
		default:
			p.receivers.Open(have.group).Close()
		}
	}
}

// warn logs a problem and keeps it for Usage.
func (s *Store) warn(what string, args ...any) {
	if s == nil {
		return
	}
	s.opt.Log.Warn(what, args...)
}

// full tells that something could not be allocated.
func (l *log) full(err error) {
	if l.store == nil || errors.Is(err, errNoRoom) || errors.Is(err, errUnwritable) {
		return
	}
	before := l.store.pool.short.Load()
	l.store.pool.full(err)
	if before == nil || time.Now().After(before.until) {
		l.store.warn("histories cannot grow; older parts make room for new ones", "err", err)
	}
}

// kick has the files brought to the disk soon.
func (s *Store) kick() {
	if s == nil {
		return
	}
	select {
	case s.kicks <- struct{}{}:
	default:
	}
}

func (s *Store) keepSyncing() {
	ticks := time.NewTicker(s.opt.SyncEvery)
	defer ticks.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-s.kicks:
		case <-ticks.C:
		}
		s.sync(false)
	}
}

// sync brings all logs to the disk.
func (s *Store) sync(clean bool) {
	for _, l := range s.logs() {
		err := l.sync(clean)
		what := "sync " + l.name()
		s.mu.Lock()
		before := s.problems[what]
		delete(s.problems, what)
		if err != nil {
			s.problems[what] = err.Error()
		}
		s.mu.Unlock()
		if err != nil && before == "" {
			s.warn("a history cannot be brought to the disk", "group", l.name(), "err", err)
		}
	}
}

// kept is a log of either direction.
type kept interface {
	owner
	sync(clean bool) error
	name() string
	purge()
	shut()
	Stats() Stats
}

func (s *Store) logs() (all []kept) {
	for _, p := range s.sorted() {
		for _, g := range p.senders.all() {
			all = append(all, g)
		}
		for _, g := range p.receivers.all() {
			all = append(all, g)
		}
	}
	return all
}

// Close brings everything to the disk and lets go of it. No leg is left.
func (s *Store) Close() error {
	s.mu.Lock()
	already := s.closed
	s.closed = true
	s.mu.Unlock()
	if already {
		return nil
	}
	close(s.stop)
	s.done.Wait()
	if s.cache != nil {
		s.sync(true)
	}
	for _, l := range s.logs() {
		l.shut()
	}
	if s.lock != nil {
		return s.lock.Close()
	}
	return nil
}

// Remove takes away all that is kept in a directory which no agent uses: of one peer, if its key is given, and of one group, if that is
// not empty. It returns how many logs that were.
func Remove(directory string, key []byte, group string) (logs int, err error) {
	if _, err := os.Stat(directory); errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	lock, err := lockDir(directory)
	if err != nil {
		return 0, err
	}
	defer lock.Close()
	peers, err := os.ReadDir(directory)
	if err != nil {
		return 0, err
	}
	for _, p := range peers {
		k, err := hex.DecodeString(p.Name())
		if err != nil || !p.IsDir() || key != nil && string(k) != string(key) {
			continue
		}
		n, err := removePeer(filepath.Join(directory, p.Name()), group)
		logs += n
		if err != nil {
			return logs, err
		}
	}
	if key == nil && group == "" {
		_ = os.Remove(filepath.Join(directory, "lock"))
		_ = os.Remove(directory) // if nothing of somebody else's is in it
	}
	return logs, nil
}

func removePeer(dir, group string) (logs int, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		own := strings.HasPrefix(e.Name(), sent.String()+"-") || strings.HasPrefix(e.Name(), received.String()+"-")
		if !e.IsDir() || !own {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if group != "" && path != (place{dir: dir, dirs: sent}).group(group).dir && path != (place{dir: dir, dirs: received}).group(group).dir {
			continue
		}
		removeLog(path)
		logs++
	}
	if group == "" {
		_ = os.Remove(filepath.Join(dir, "epoch"))
		_ = os.Remove(dir)
	}
	return logs, nil
}
