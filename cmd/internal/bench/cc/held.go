// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/trunkline/trunkline/cc"
	"github.com/trunkline/trunkline/cmd/internal/bench"
	"github.com/trunkline/trunkline/cmd/internal/labagent"
	"github.com/trunkline/trunkline/loader/ledger"
)

// held is what the kernel offers for the bench's sake: algorithms of ours, and modules.
type held struct {
	names   []*cc.Registration
	modules []string
	ledger  *ledger.Ledger // where registrations outlive their process; nil: they do not
}

// holdAlgorithms has the kernel offer what the plan needs. What it does not take leaves the plan, with a note. Whatever it
// gives, release must follow.
func holdAlgorithms(dir string, p *plan) (*held, error) {
	h := &held{}
	refused := map[string]error{}
	for _, name := range p.kernelNames() {
		var err error
		if strings.HasPrefix(name, "tl_") {
			err = h.register(dir, name)
		} else {
			err = h.loadModule(name)
		}
		if err != nil {
			refused[name] = err
			p.notes = append(p.notes, fmt.Sprintf("%s is not run: %v", name, err))
		}
	}
	p.subjects = slices.DeleteFunc(p.subjects, func(s subject) bool { return refused[s.name] != nil })
	if len(p.subjects) == 0 {
		return h, fmt.Errorf("no algorithm is left to run: %s", strings.Join(p.notes, "; "))
	}
	if err := refused[p.beside]; err != nil {
		return h, fmt.Errorf("--beside %s: %w", p.beside, err)
	}
	return h, nil
}

// kernelNames are ours, and the kernel's that are not there yet, once each.
func (p *plan) kernelNames() (names []string) {
	for _, s := range p.subjects {
		if (s.ours() && !s.auto() || s.load) && !slices.Contains(names, s.name) {
			names = append(names, s.name)
		}
	}
	return names
}

func (h *held) register(dir, name string) error {
	mode, err := cc.Probe()
	if err != nil {
		return err
	}
	o := cc.Options{Mode: mode}
	if mode == cc.ByMap {
		if err := h.openLedger(dir); err != nil {
			return err
		}
		o.Recorder = notes{h.ledger}
	}
	r, err := cc.Register(name, o)
	if err != nil {
		return err
	}
	h.names = append(h.names, r)
	return nil
}

// notes is a Recorder that writes into a ledger.
type notes struct{ *ledger.Ledger }

// Record writes down that a name will be registered for good.
func (n notes) Record(name, lockFile string) (forget func() error, err error) {
	id, err := n.Ledger.Record(ledger.Entry{Kind: ledger.StructOps, Target: name, New: lockFile})
	return func() error { return n.Forget(id) }, err
}

// openLedger makes a ledger where the next bench looks for what a killed one has left, as it does for its agents.
func (h *held) openLedger(dir string) error {
	if h.ledger != nil {
		return nil
	}
	own := filepath.Join(dir, "algorithms")
	state := filepath.Join(own, "state")
	if err := os.MkdirAll(state, 0o700); err != nil {
		return fmt.Errorf("making a directory: %w", err)
	}
	text := fmt.Sprintf("instance: bench-%d-algorithms\nstate_dir: %s\nrun_dir: %s\n", os.Getpid(), state, own)
	if err := os.WriteFile(filepath.Join(own, labagent.ConfigName), []byte(text), 0o600); err != nil {
		return fmt.Errorf("writing a configuration: %w", err)
	}
	l, err := ledger.Open(filepath.Join(state, "ledger.db"))
	if err != nil {
		return err
	}
	h.ledger = l
	if _, err := l.Record(ledger.Entry{Kind: ledger.Dir, Target: cc.DefaultLockDir}); err != nil {
		return err
	}
	if err := os.Mkdir(cc.DefaultLockDir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("making a directory: %w", err)
	}
	return nil
}

func (h *held) loadModule(name string) error {
	module := "tcp_" + name
	if err := bench.LoadModule(module); err != nil {
		return fmt.Errorf("loading its module: %w", err)
	}
	h.modules = append(h.modules, module)
	return nil
}

// release takes away what was brought, and no more.
func (h *held) release() error {
	if h == nil {
		return nil
	}
	var errs []error
	for _, r := range h.names {
		errs = append(errs, r.Close())
	}
	if h.ledger != nil {
		_, err := h.ledger.Undo(slog.New(slog.DiscardHandler))
		errs = append(errs, err, h.ledger.Close())
	}
	for _, m := range h.modules {
		errs = append(errs, bench.UnloadModule(m))
	}
	return errors.Join(errs...)
}
