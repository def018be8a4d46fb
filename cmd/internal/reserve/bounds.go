// SPDX-License-Identifier: Apache-2.0

package reserve

import "time"

// The bounds of what comes from outside.
const (
	MaxRateBps      = 1_000_000_000_000 / 8    // of a reservation, in bytes per second: 1 Tbit/s
	minRateBps      = 100_000 / 8              // of this host's part
	MaxReservations = 1024                     // that have not ended
	maxEnded        = 1024                     // that are remembered
	keepEnded       = 7 * 24 * time.Hour       // how long
	maxEndPoints    = 64                       // prefixes of one reservation
	maxAhead        = 5 * 366 * 24 * time.Hour // from now to an end
	maxText         = 128                      // bytes of any single value of a request
)
