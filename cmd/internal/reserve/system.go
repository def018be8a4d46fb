// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"context"
	"time"
)

// System is a provisioning system of somebody else's, as its adapter shows it: the paper's ARGON, DRAC and UCLP are such. An
// adapter only speaks; what is granted here, and what becomes of it, the Broker sees to.
type System interface {
	// Pull returns all that the system has granted this host now or later, at most MaxOrders. An order that cannot be
	// understood has a Problem, and does not keep others from being taken. An error means that nothing is known: all stays.
	Pull(context.Context) ([]Order, error)
	// Report tells the system what became of its orders, among it the tuning values.
	Report(context.Context, []Report) error
}

// MaxOrders bounds what is taken from one system.
const MaxOrders = MaxReservations

// Order is a reservation that a system has granted. Its ID is the system's own name for it.
type Order struct {
	Request
	Problem error
}

// Report says what became of an order.
type Report struct {
	ID      string `json:"id"` // the order's
	Refused Why    `json:"refused,omitempty"`
	Error   string `json:"error,omitempty"` // why it is not in the book, or why it stands there as it was before

	Reservation string     `json:"reservation,omitempty"` // its id in the book; "": it is not in it
	State       State      `json:"state,omitempty"`
	Reason      string     `json:"reason,omitempty"` // why it is suspended
	Since       time.Time  `json:"state_since,omitzero"`
	HostRateBps uint64     `json:"host_rate_Bps,omitempty"` // this host's part, in bytes per second
	EndPoints   []EndPoint `json:"end_points,omitempty"`    // with round-trip times, when and how often they were measured
	Tuning      *Tuning    `json:"tuning,omitempty"`        // the values in force
	Use         *Use       `json:"use,omitempty"`           // what connections make of it
}

func reportOf(order string, r Reservation) Report {
	r.Use.PerFlow = nil
	return Report{ID: order, Reservation: r.ID, State: r.State, Reason: r.Reason, Since: r.Since, HostRateBps: r.HostRateBps(),
		EndPoints: r.EndPoints, Tuning: r.Tuning, Use: &r.Use}
}
