// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Clock tells the time in the two ways that a reservation is kept by.
type Clock interface {
	Wall() time.Time     // what the host's clock says; it may jump
	Boot() time.Duration // since the boot, sleep included; it never jumps
	BootID() string      // which boot that is
}

// SystemClock is the host's.
func SystemClock() Clock {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		id = []byte("unknown") // then Boot is trusted over restarts of the agent alone, as it is the same process's host
	}
	return systemClock{strings.TrimSpace(string(id))}
}

type systemClock struct{ id string }

func (systemClock) Wall() time.Time  { return time.Now().UTC().Round(0) }
func (c systemClock) BootID() string { return c.id }

func (systemClock) Boot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// anchor ties a reservation to the clock that never jumps: what both clocks said when it was made.
//
// A reservation lives by the earlier of two clocks: the wall's, and the wall's at the anchor plus the time that has really
// passed since. So it neither begins nor ends early, whatever happens to the wall's clock: set forward, it does not count; set
// back, the end, which is a point in time, is waited for. The price is a reservation that ends late by as much as the clock was
// wrong when it was made; it takes a new anchor when it is changed, and at the next boot, when there is only the wall's clock.
// Daylight saving does not come into it, since all points in time are kept in UTC.
type anchor struct {
	BootID string        `json:"boot_id"`
	Boot   time.Duration `json:"boot_ns"`
	Wall   time.Time     `json:"wall"`
}

func anchorAt(c Clock) anchor { return anchor{c.BootID(), c.Boot(), c.Wall()} }

// now is the time that a reservation of the anchor lives by.
func (a anchor) now(c Clock) time.Time {
	wall := c.Wall()
	own := a.Wall.Add(c.Boot() - a.Boot)
	if a.BootID == c.BootID() && own.Before(wall) {
		return own
	}
	return wall
}
