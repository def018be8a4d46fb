// SPDX-License-Identifier: Apache-2.0

package reserve

import "time"

// The bounds of what comes from outside.
const (
	MaxRateBps      = 1e12 / 8 // of a reservation, in bytes per second
	minRateBps      = 1000
	MaxReservations = 1024 // that have not ended
	maxEnded        = 1024 // that are remembered
	keepEnded       = 7 * 24 * time.Hour
	maxEndPoints    = 64                       // prefixes of one reservation
	maxAhead        = 5 * 366 * 24 * time.Hour // from now to an end
	maxText         = 128                      // bytes of any single value of a request
)
