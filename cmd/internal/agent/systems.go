// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/trunkline/trunkline/cmd/internal/config"
	"github.com/trunkline/trunkline/cmd/internal/reserve"
)

// systems are the provisioning systems that reservations come from.
type systems struct {
	wake chan struct{} // another configuration is in force

	mu      sync.Mutex // guards what follows
	brokers []*reserve.Broker
}

// changed has other systems followed if the configuration names others.
func (s *systems) changed() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// followSystems runs a broker for each system until ctx ends. Of a system that the configuration no longer names, what it granted
// stays until its end.
func (a *agent) followSystems(ctx context.Context) error {
	s := &a.granted.systems
	for {
		a.mu.Lock()
		now := a.config.Reservations.Systems
		a.mu.Unlock()
		running, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		s.mu.Lock()
		s.brokers = nil
		for _, one := range now {
			b := a.broker(one)
			s.brokers = append(s.brokers, b)
			wg.Go(func() { b.Run(running) })
		}
		s.mu.Unlock()
		a.untilOtherSystems(ctx, now)
		cancel()
		wg.Wait()
		if ctx.Err() != nil {
			return nil
		}
	}
}

// untilOtherSystems returns when the configuration names other ones, or ctx has ended.
func (a *agent) untilOtherSystems(ctx context.Context, now []config.System) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.granted.systems.wake:
		}
		a.mu.Lock()
		same := slices.Equal(now, a.config.Reservations.Systems)
		a.mu.Unlock()
		if !same {
			return
		}
	}
}

func (a *agent) broker(s config.System) *reserve.Broker {
	var adapter reserve.System = &reserve.Directory{Path: s.Directory}
	if s.URL != "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		a.mu.Lock()
		instance := a.config.Instance
		a.mu.Unlock()
		adapter = reserve.NewWeb(s.URL, s.Token, host, instance)
	}
	return &reserve.Broker{Name: s.Name, Owner: s.Owner, Every: s.Every, System: adapter, Book: a.granted.book, Log: a.log}
}

func (s *systems) status() []reserve.SystemStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]reserve.SystemStatus, len(s.brokers))
	for i, b := range s.brokers {
		all[i] = b.Status()
	}
	return all
}

func (s *systems) problems() []string {
	var problems []string
	for _, one := range s.status() {
		if one.Problem != "" {
			problems = append(problems, fmt.Sprintf("reservations of system %s are not followed, those that it has stay: %s", one.Name, one.Problem))
		}
		if one.Refused > 0 {
			problems = append(problems, fmt.Sprintf("%d of %d reservations of system %s are refused; its reports and the log say why", one.Refused, one.Orders, one.Name))
		}
	}
	return problems
}
