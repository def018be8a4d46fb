// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"fmt"
	"os"

	"github.com/trunkline/trunkline/vmtest/lab"
)

// What makes the path.
const (
	emulationAuto  = "auto"  // the kernel where it can
	emulationNetem = "netem" // the kernel
	emulationLab   = "lab"   // the emulator in this process
)

// pickEmulation says what makes the paths of this bench. Measured links are replayed by the emulator alone.
func (s *settings) pickEmulation() (string, error) {
	switch {
	case len(s.traces) > 0 && s.emulation == emulationNetem:
		return "", fmt.Errorf("--emulation netem and --trace exclude each other; the kernel cannot replay a trace")
	case len(s.traces) > 0 || s.emulation == emulationLab:
		return emulationLab, nil
	}
	err := lab.HaveNetem()
	switch {
	case err == nil:
		return emulationNetem, nil
	case s.emulation == emulationNetem:
		return "", fmt.Errorf("--emulation netem: %w", err)
	}
	return emulationLab, nil
}

// labOptions are those of a path. Packets go one by one: a loss is one packet's, and the queue's length is exact.
func (e *experiment) labOptions(c *cell) (lab.Options, error) {
	o := lab.Options{Rate: c.rate, RTT: c.delay, OneWay: true, Loss: c.loss, LossAB: true, Burst: e.burst, QueueBDP: e.queueBDP,
		NoGSO: true, NoIPv6: true}
	if e.plan.emulation == emulationNetem {
		o.Emulation = lab.InKernel
	}
	if e.queueBDP == 0 {
		o.QueueBytes = lab.MinQueue
	}
	if c.trace == "" {
		return o, nil
	}
	var err error
	if o.Trace, err = readTrace(c.trace); err == nil && c.traceUp != "" {
		o.TraceBA, err = readTrace(c.traceUp)
	}
	return o, err
}

func readTrace(path string) (*lab.Trace, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading a trace: %w", err)
	}
	defer f.Close()
	t, err := lab.ReadTrace(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// meanRate is that of a trace in bit/s.
func meanRate(path string) (uint64, error) {
	t, err := readTrace(path)
	if err != nil {
		return 0, err
	}
	return uint64(t.Rate()), nil
}

// reset makes the path what it was at first, with the losses of a run.
func (w *world) reset(seed uint64) {
	if len(w.e.plan.changes) > 0 {
		w.apply(change{rate: w.cell.rate, delay: w.cell.delay, loss: w.cell.loss})
	}
	w.lab.Link.Restart(seed)
}

// apply changes the path.
func (w *world) apply(c change) {
	if c.rate > 0 && w.cell.trace == "" {
		w.lab.Link.SetRate(c.rate)
	}
	if c.delay >= 0 {
		w.lab.Link.SetRTT(c.delay)
	}
	if c.loss >= 0 {
		w.lab.Link.AB.SetLoss(c.loss)
	}
}
