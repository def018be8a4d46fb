// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trunkline/trunkline/cmd/internal/units"
)

// change is what becomes of the path while a flow is on it. What is not given stays.
type change struct {
	at    time.Duration // since the flow's connect
	rate  uint64        // bit/s; 0: stays
	delay time.Duration // -1: stays
	loss  float64       // -1: stays
}

// parseChanges reads rate=20Mbit,loss=1e-3,delay=50ms@5s, and puts them in the order of their times.
func parseChanges(texts []string) ([]change, error) {
	var list []change
	for _, text := range texts {
		c, err := parseChange(text)
		if err != nil {
			return nil, fmt.Errorf("--change %q: %w; write it like rate=20Mbit,loss=1e-3,delay=50ms@5s", text, err)
		}
		list = append(list, c)
	}
	slices.SortStableFunc(list, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	return list, nil
}

func parseChange(text string) (c change, err error) {
	c.delay, c.loss = -1, -1
	what, when, ok := strings.Cut(text, "@")
	if !ok || what == "" {
		return c, fmt.Errorf("it needs what changes, @ and when")
	}
	if c.at, err = units.Duration(when); err != nil {
		return c, err
	}
	for part := range strings.SplitSeq(what, ",") {
		key, value, _ := strings.Cut(part, "=")
		switch key {
		case "rate":
			c.rate, err = readRate(value)
		case "delay":
			c.delay, err = readDelay(value)
		case "loss":
			c.loss, err = readLoss(value)
		default:
			err = fmt.Errorf("%q is none of rate, delay, loss", key)
		}
		if err != nil {
			return c, err
		}
	}
	return c, nil
}
