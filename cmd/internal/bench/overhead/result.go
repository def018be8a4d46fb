// SPDX-License-Identifier: Apache-2.0

package overhead

import (
	"cmp"
	"maps"
	"slices"

	"github.com/trunkline/trunkline/cmd/internal/bench"
)

// found is what the runs of one setting gave; slices have an entry a round, in the order of rounds for all settings.
type found struct {
	set *setting
	off string // why there is nothing

	connects, failed, steered        uint64
	failure                          string // the last one
	connectsPerS, cpuUs, agentsCPUUs []float64

	bytes                                   uint64
	goodputMbps, cpuSPerGB, agentsCPUSPerGB []float64

	idleMsPerS, residentMB []float64

	uncounted string // why programs were not counted
	programs  map[programKey]*programRuns
}

type programKey struct{ traffic, name string }

type programRuns struct {
	runs, packets uint64
	nsPerRun      []float64
	runsPerUnit   []float64 // connection, or packet of a stream
	nsPerUnit     []float64
}

func (f *found) addPrograms(traffic string, did map[string]program, connects, packets uint64) {
	units := float64(connects)
	if traffic == "bulk" {
		units = float64(packets)
	}
	for name, p := range did {
		key := programKey{traffic, name}
		r := f.programs[key]
		if r == nil {
			r = &programRuns{}
			f.programs[key] = r
		}
		r.runs += p.runs
		r.nsPerRun = append(r.nsPerRun, float64(p.runtime)/float64(p.runs))
		r.runsPerUnit = append(r.runsPerUnit, float64(p.runs)/max(units, 1))
		r.nsPerUnit = append(r.nsPerUnit, float64(p.runtime)/max(units, 1))
	}
}

// The rows of the JSON. A part that a row does not speak of is left out.
type (
	offRow struct {
		Part    string `json:"part"` // off
		Setting string `json:"setting"`
		Why     string `json:"why"`
	}
	connectRow struct {
		Part          string  `json:"part"` // connect
		Setting       string  `json:"setting"`
		Parallel      int     `json:"parallel"`
		TimeS         float64 `json:"time_s"`
		Runs          int     `json:"runs"`
		Connects      uint64  `json:"connects"`
		Failed        uint64  `json:"failed"`
		Steered       float64 `json:"steered"` // share, 0 to 1
		PerS          float64 `json:"connects_per_s"`
		PerSQ1        float64 `json:"connects_per_s_q1"`
		PerSQ3        float64 `json:"connects_per_s_q3"`
		CPUUs         float64 `json:"cpu_us_per_connect"`
		CPUUsQ1       float64 `json:"cpu_us_per_connect_q1"`
		CPUUsQ3       float64 `json:"cpu_us_per_connect_q3"`
		AgentsCPUUs   float64 `json:"agents_cpu_us_per_connect"`
		AddedCPUUs    float64 `json:"added_cpu_us_per_connect"` // against none in the same round
		AddedCPUUsQ1  float64 `json:"added_cpu_us_per_connect_q1"`
		AddedCPUUsQ3  float64 `json:"added_cpu_us_per_connect_q3"`
		RelativeSpeed float64 `json:"relative_connects_per_s"` // to none in the same round
	}
	bulkRow struct {
		Part            string  `json:"part"` // bulk
		Setting         string  `json:"setting"`
		Streams         int     `json:"streams"`
		TimeS           float64 `json:"time_s"`
		Runs            int     `json:"runs"`
		Bytes           uint64  `json:"sent_bytes"`
		Goodput         float64 `json:"goodput_Mbps"`
		GoodputQ1       float64 `json:"goodput_Mbps_q1"`
		GoodputQ3       float64 `json:"goodput_Mbps_q3"`
		CPU             float64 `json:"cpu_s_per_GB"`
		CPUQ1           float64 `json:"cpu_s_per_GB_q1"`
		CPUQ3           float64 `json:"cpu_s_per_GB_q3"`
		AgentsCPU       float64 `json:"agents_cpu_s_per_GB"`
		AddedCPU        float64 `json:"added_cpu_s_per_GB"`
		RelativeGoodput float64 `json:"relative_goodput"`
	}
	idleRow struct {
		Part    string  `json:"part"` // idle
		Setting string  `json:"setting"`
		Runs    int     `json:"runs"`
		CPU     float64 `json:"cpu_ms_per_s"`
		CPUQ1   float64 `json:"cpu_ms_per_s_q1"`
		CPUQ3   float64 `json:"cpu_ms_per_s_q3"`
		Memory  float64 `json:"resident_MB"`
	}
	connectProgramRow struct {
		programRow
		RunsPer float64 `json:"runs_per_connect"`
		NsPer   float64 `json:"ns_per_connect"`
	}
	packetProgramRow struct {
		programRow
		RunsPer float64 `json:"runs_per_packet"`
		NsPer   float64 `json:"ns_per_packet"`
	}
	programRow struct {
		Part     string  `json:"part"` // program
		Setting  string  `json:"setting"`
		Traffic  string  `json:"traffic"` // connect or bulk
		Program  string  `json:"program"`
		Runs     int     `json:"runs"`
		Times    uint64  `json:"program_runs"`
		NsPerRun float64 `json:"ns_per_run"`
		NsQ1     float64 `json:"ns_per_run_q1"`
		NsQ3     float64 `json:"ns_per_run_q3"`
	}
)

const digits = 4 // of every figure: more would be noise

// report makes rows, tables and the plot of what was found.
func (o *overhead) report() *bench.Report {
	r := &bench.Report{}
	none := o.seen[o.chosen[0].name]
	var all []*found
	for _, set := range o.chosen {
		f := o.seen[set.name]
		if f.off != "" {
			r.Rows = append(r.Rows, offRow{"off", f.set.name, f.off})
			continue
		}
		all = append(all, f)
	}
	for _, f := range all {
		r.Rows = append(r.Rows, o.connectRow(f, none))
	}
	for _, f := range all {
		r.Rows = append(r.Rows, o.bulkRow(f, none))
	}
	for _, f := range all {
		if f.set.near {
			r.Rows = append(r.Rows, f.idleRow())
		}
	}
	for _, f := range all {
		r.Rows = append(r.Rows, f.programRows()...)
	}
	o.tables(r)
	r.Plots = append(r.Plots, plotCPU(r.Rows))
	return r
}

func (o *overhead) connectRow(f, none *found) connectRow {
	perS, cpu := bench.Of(f.connectsPerS).Digits(digits), bench.Of(f.cpuUs).Digits(digits)
	added := bench.Of(paired(f.cpuUs, none.cpuUs, minus)).Digits(digits)
	return connectRow{
		Part: "connect", Setting: f.set.name, Parallel: o.parallel, TimeS: o.cell.Seconds(), Runs: len(f.cpuUs),
		Connects: f.connects, Failed: f.failed, Steered: bench.Significant(float64(f.steered)/float64(f.connects), digits),
		PerS: perS.Median, PerSQ1: perS.Q1, PerSQ3: perS.Q3, CPUUs: cpu.Median, CPUUsQ1: cpu.Q1, CPUUsQ3: cpu.Q3,
		AgentsCPUUs: median(f.agentsCPUUs), AddedCPUUs: added.Median, AddedCPUUsQ1: added.Q1, AddedCPUUsQ3: added.Q3,
		RelativeSpeed: median(paired(f.connectsPerS, none.connectsPerS, over)),
	}
}

func (o *overhead) bulkRow(f, none *found) bulkRow {
	goodput, cpu := bench.Of(f.goodputMbps).Digits(digits), bench.Of(f.cpuSPerGB).Digits(digits)
	return bulkRow{
		Part: "bulk", Setting: f.set.name, Streams: 1, TimeS: o.cell.Seconds(), Runs: len(f.cpuSPerGB), Bytes: f.bytes,
		Goodput: goodput.Median, GoodputQ1: goodput.Q1, GoodputQ3: goodput.Q3, CPU: cpu.Median, CPUQ1: cpu.Q1, CPUQ3: cpu.Q3,
		AgentsCPU: median(f.agentsCPUSPerGB), AddedCPU: median(paired(f.cpuSPerGB, none.cpuSPerGB, minus)),
		RelativeGoodput: median(paired(f.goodputMbps, none.goodputMbps, over)),
	}
}

func (f *found) idleRow() idleRow {
	cpu := bench.Of(f.idleMsPerS).Digits(digits)
	return idleRow{Part: "idle", Setting: f.set.name, Runs: len(f.idleMsPerS), CPU: cpu.Median, CPUQ1: cpu.Q1, CPUQ3: cpu.Q3,
		Memory: median(f.residentMB)}
}

func (f *found) programRows() (rows []any) {
	keys := slices.SortedFunc(maps.Keys(f.programs), func(a, b programKey) int {
		return cmp.Or(-cmp.Compare(a.traffic, b.traffic), cmp.Compare(a.name, b.name)) // connect before bulk
	})
	for _, k := range keys {
		p := f.programs[k]
		ns := bench.Of(p.nsPerRun).Digits(digits)
		row := programRow{Part: "program", Setting: f.set.name, Traffic: k.traffic, Program: k.name, Runs: len(p.nsPerRun),
			Times: p.runs, NsPerRun: ns.Median, NsQ1: ns.Q1, NsQ3: ns.Q3}
		if k.traffic == "bulk" {
			rows = append(rows, packetProgramRow{row, median(p.runsPerUnit), median(p.nsPerUnit)})
		} else {
			rows = append(rows, connectProgramRow{row, median(p.runsPerUnit), median(p.nsPerUnit)})
		}
	}
	return rows
}

func median(runs []float64) float64 { return bench.Of(runs).Digits(digits).Median }

func minus(a, b float64) float64 { return a - b }
func over(a, b float64) float64  { return a / b }

// paired compares the runs of the same rounds, so that what changes from round to round does not count.
func paired(a, b []float64, by func(a, b float64) float64) []float64 {
	pairs := make([]float64, min(len(a), len(b)))
	for i := range pairs {
		pairs[i] = by(a[i], b[i])
	}
	return pairs
}
