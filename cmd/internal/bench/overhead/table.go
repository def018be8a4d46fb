// SPDX-License-Identifier: Apache-2.0

package overhead

import (
	"fmt"
	"strconv"

	"github.com/trunkline/trunkline/cmd/internal/bench"
)

// tables says in words and figures what the rows say.
func (o *overhead) tables(r *bench.Report) {
	what := bench.Table{Title: fmt.Sprintf("Settings; each was run %d times, for %v a load, interleaved. Figures are medians, in brackets "+
		"the quartiles.", len(o.seen[o.chosen[0].name].cpuUs), o.cell),
		Header: []string{"SETTING", "WHAT"}, Words: 2}
	connect := bench.Table{Title: fmt.Sprintf("A connection: connect, 1 byte there and back, close; %d at a time", o.parallel), Words: 1,
		Header: []string{"SETTING", "CONNECTS/S", "", "CPU us", "", "AGENTS' us", "ADDED us", "STEERED"}}
	bulk := bench.Table{Title: "A stream of bytes that neither repeat nor compress, without any limit but the machine", Words: 1,
		Header: []string{"SETTING", "Mbit/s", "", "CPU s/GB", "", "AGENTS' s/GB", "ADDED s/GB"}}
	idle := bench.Table{Title: "The agent while nothing happens", Words: 1, Header: []string{"SETTING", "CPU ms/s", "", "MEMORY MB"}}
	perConnect := bench.Table{Title: "BPF programs of the agent at the clients' host while they connect", Words: 2,
		Header: []string{"SETTING", "PROGRAM", "ns/RUN", "", "RUNS/CONNECT", "ns/CONNECT"}}
	perPacket := bench.Table{Title: "The same while they send a stream", Words: 2,
		Header: []string{"SETTING", "PROGRAM", "ns/RUN", "", "RUNS/PACKET", "ns/PACKET"}}
	for _, set := range o.chosen {
		what.Add(set.name, set.what)
		if f := o.seen[set.name]; f.off != "" {
			what.Notes = append(what.Notes, fmt.Sprintf("%s was not run: %s", set.name, f.off))
		} else if f.uncounted != "" && len(perConnect.Notes) == 0 {
			perConnect.Notes = append(perConnect.Notes, f.uncounted)
		}
	}
	for _, row := range r.Rows {
		switch v := row.(type) {
		case connectRow:
			connect.Add(v.Setting, bench.Figure(v.PerS), quartiles(v.PerSQ1, v.PerSQ3), bench.Figure(v.CPUUs), quartiles(v.CPUUsQ1, v.CPUUsQ3),
				bench.Figure(v.AgentsCPUUs), bench.Figure(v.AddedCPUUs), percent(v.Steered))
			if v.Failed > 0 {
				connect.Notes = append(connect.Notes, fmt.Sprintf("%s: %d connections failed beside %d; the last one: %s",
					v.Setting, v.Failed, v.Connects, o.seen[v.Setting].failure))
			}
		case bulkRow:
			bulk.Add(v.Setting, bench.Figure(v.Goodput), quartiles(v.GoodputQ1, v.GoodputQ3), bench.Figure(v.CPU), quartiles(v.CPUQ1, v.CPUQ3),
				bench.Figure(v.AgentsCPU), bench.Figure(v.AddedCPU))
		case idleRow:
			idle.Add(v.Setting, bench.Figure(v.CPU), quartiles(v.CPUQ1, v.CPUQ3), bench.Figure(v.Memory))
		case connectProgramRow:
			perConnect.Add(v.Setting, v.Program, bench.Figure(v.NsPerRun), quartiles(v.NsQ1, v.NsQ3), bench.Figure(v.RunsPer), bench.Figure(v.NsPer))
		case packetProgramRow:
			perPacket.Add(v.Setting, v.Program, bench.Figure(v.NsPerRun), quartiles(v.NsQ1, v.NsQ3), bench.Figure(v.RunsPer), bench.Figure(v.NsPer))
		}
	}
	connect.Notes = append(connect.Notes, "CPU is of clients, servers, both kernels and agents together; ADDED is the difference to none "+
		"in the same round.")
	perConnect.Notes = append(perConnect.Notes, "By the kernel's own count, which is part of the time and is off for the tables above.")
	perPacket.Notes = append(perPacket.Notes, "Packets are those of the wire both ways; on a veth one carries up to 64 KiB.")
	r.Tables = append(r.Tables, what, connect, bulk, idle, perConnect, perPacket)
}

func quartiles(q1, q3 float64) string { return "(" + bench.Figure(q1) + ".." + bench.Figure(q3) + ")" }

func percent(share float64) string { return strconv.FormatFloat(100*share, 'f', 0, 64) + " %" }

// plotCPU draws what a connection costs by setting.
func plotCPU(rows []any) bench.Plot {
	var names []string
	var values []bench.Spread
	for _, row := range rows {
		if v, ok := row.(connectRow); ok {
			names = append(names, v.Setting)
			values = append(values, bench.Spread{Median: v.CPUUs, Q1: v.CPUUsQ1, Q3: v.CPUUsQ3})
		}
	}
	return bench.Plot{Name: "cpu-per-connect",
		Draw: bench.Bars("A connection with one byte there and back, both hosts together", "CPU time, µs", names, values)}
}
