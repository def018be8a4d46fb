// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/cmd/internal/control"
)

// awakeTimeout is what the engine's loops get to begin on a busy host.
const awakeTimeout = 10 * time.Second

// signals are those that the agent acts upon.
type signals struct{ end, hangup chan os.Signal }

func catchSignals() signals {
	s := signals{make(chan os.Signal, 2), make(chan os.Signal, 1)}
	signal.Notify(s.end, unix.SIGTERM, os.Interrupt)
	signal.Notify(s.hangup, unix.SIGHUP)
	return s
}

func (s signals) stop() {
	signal.Stop(s.end)
	signal.Stop(s.hangup)
}

// work runs the parts until a signal ends it or one of them fails.
func (a *agent) work(ctx context.Context, s signals) error {
	carrying, rest := context.WithCancel(context.WithoutCancel(ctx)) // lasts until nothing is steered any more, whatever fails
	defer rest()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	part := func(name string, run func() error) {
		wg.Go(func() {
			err := run()
			if err == nil {
				err = errors.New("ended by itself")
			}
			cancel(fmt.Errorf("%s: %w", name, err)) // no effect if something else has ended it
		})
	}
	part("engine", func() error { return a.engine.Run(carrying) })
	part("kernel side", func() error { return a.loader.Run(carrying, a.engine.Alive) })
	err := a.awake(ctx)
	if err == nil {
		err = a.steer()
	}
	if err == nil {
		c := a.config // before anybody can ask for a reload
		// Who gets an answer from the control socket may rely on connections being steered.
		part("control socket", func() error { return control.Serve(ctx, a.control, a, a.log) })
		part("watchdog", func() error { return a.watch(ctx) })
		part("choice of congestion controls", func() error { return a.choose(ctx) })
		part("loss events", func() error { return a.losses(ctx) })
		part("reservations", func() error { return a.granted.keeper.Run(ctx) })
		part("provisioning systems", func() error { return a.followSystems(ctx) })
		part("peers", func() error { return a.followPeers(ctx) })
		a.notify(daemon.SdNotifyReady)
		a.log.Info("ready", "rules", len(c.Rules), "peers", len(c.Peers), "version", a.o.Version)
		err = a.untilEnd(ctx, s)
	}
	cancel(nil)
	_ = a.endSteering() // if that fails, so it does for close, which says so
	rest()
	wg.Wait()
	if errors.Is(err, context.Canceled) {
		return nil // whoever ran the agent has ended it
	}
	return err
}

// awake waits until the engine takes connections, so that READY means what it says.
func (a *agent) awake(ctx context.Context) error {
	for end := time.Now().Add(awakeTimeout); !a.engine.Alive(); {
		if time.Now().After(end) {
			return errors.New("the engine does not begin to take connections; see that the host is not starved of CPU")
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

// untilEnd returns when a signal has ended the agent, after draining, or a part has failed.
func (a *agent) untilEnd(ctx context.Context, s signals) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.hangup:
			a.notify(daemon.SdNotifyReloading)
			if _, err := a.Reload(); err != nil {
				a.log.Error("the configuration is unchanged", "err", err)
			}
			a.notify(daemon.SdNotifyReady)
		case sig := <-s.end:
			a.log.Info("ending", "signal", sig.String(), "flows_get_s", drainTime.Seconds())
			a.notify(daemon.SdNotifyStopping)
			return a.finish(ctx, s)
		}
	}
}

// finish steers no more and gives flows their time; a second signal cuts it short.
func (a *agent) finish(ctx context.Context, s signals) error {
	if err := a.endSteering(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- a.engine.Drain(ctx) }()
	select {
	case err := <-done:
		if err != nil {
			a.log.Warn("flows are left and will be reset", "err", err)
		}
	case <-s.end:
		a.log.Warn("a second signal: ending at once")
		cancel()
		<-done
	}
	return nil
}

// endSteering has connections go direct from now on, for good.
func (a *agent) endSteering() error {
	a.mu.Lock()
	a.ending = true
	a.mu.Unlock()
	return a.Drain()
}

// notify tells systemd, if it asked to be told. Its absence is not an error.
func (a *agent) notify(state string) {
	if _, err := daemon.SdNotify(false, state+"\nSTATUS="+a.summary()); err != nil {
		a.log.Debug("telling systemd", "err", err)
	}
}

// watch keeps systemd's watchdog quiet as long as the engine is alive.
func (a *agent) watch(ctx context.Context) error {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil || interval <= 0 {
		<-ctx.Done()
		return nil
	}
	t := time.NewTicker(interval / 3)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			if a.engine.Alive() {
				a.notify(daemon.SdNotifyWatchdog)
			}
		}
	}
}

// summary is the line that systemctl status shows.
func (a *agent) summary() string {
	s, err := a.Status()
	if err != nil {
		return err.Error()
	}
	up := 0
	for _, p := range s.Peers {
		if p.Up {
			up++
		}
	}
	return fmt.Sprintf("%s; rules: %d, peers up: %d of %d, flows: %d", s.Health, s.Rules, up, len(s.Peers), s.ActiveFlows)
}
