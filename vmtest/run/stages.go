// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/vmtest/internal/machine"
	"github.com/trunkline/trunkline/vmtest/internal/plan"
)

// stage is one boot of a kernel: how the machine is, and which tests run in it. What it lacks on purpose, expect.yaml says.
type stage struct {
	name   string
	about  string
	exact  bool     // the clock counts instructions
	hybrid bool     // cgroup v1 beside cgroup2
	vng    bool     // under virtme-ng
	asked  bool     // only where it is asked for
	append string   // kernel command line
	suites []string // nil: all
	run    string   // which tests, as go test's -run; "": all
}

// The stages. The first is the whole of the tests; the others are for what the machine must be another for.
var stages = []stage{
	{name: "functional", about: "all tests, cgroup v2 only"},
	{name: "exact", about: "what is timed, on a clock that counts instructions", exact: true, suites: []string{"cc", "vmtest", "vmtest/lab"}, run: "Exact"},
	{name: "hybrid", about: "cgroup v1 beside v2", hybrid: true, suites: []string{"loader", "vmtest"},
		run: "Cgroup|BytesAreExact"},
	{name: "no-ipv6", about: "a kernel booted without IPv6", append: "ipv6.disable=1",
		suites: []string{"loader", "vmtest"}, run: "IPv6|BytesAreExact|Steer"},
	{name: "vng", about: "under virtme-ng", vng: true, suites: []string{"bpf", "loader/ledger"}},
	{name: "short", about: "one test or two for each feature", asked: true, run: "^(" + strings.Join(short, "|") + ")$"},
}

// short are the tests of the stage of that name, for when the whole takes too long.
var short = []string{
	"TestDSCP", "TestRegister", "TestLiveFlowsKeepTheirs", // bpf, cc
	"TestSteered", "TestRulesOfSockets", "TestTelemetry", "TestChoiceOfPath", "TestLossEvents", "TestUntouchedForWhatTheSocketIs", "TestPins", "TestSpliceSelfTest", // loader
	"TestEveryRetransmissionIsMarked", "TestClsactMarksEveryRetransmission", "TestCleanupAfterKill", "TestCgroupLayouts",
	"TestBpftoolNamesTheFieldsOfPinnedMaps", "TestBytesAreExactBothWays", "TestCurlAndNginx", "TestIPv6Only", "TestCleanupAfterAKill", // vmtest
	"TestTheListenerOutlivesTheHooks", "TestRED",
}

func stageNames() []string {
	var names []string
	for _, s := range stages {
		names = append(names, s.name)
	}
	return names
}

// pickStages returns the stages of the given names; those for which the machine has not the means are left out of all.
func pickStages(names []string) ([]stage, error) {
	if len(names) == 0 {
		return slices.DeleteFunc(slices.Clone(stages), func(s stage) bool { return s.asked || s.vng && !machine.HaveVNG() }), nil
	}
	var picked []stage
	for _, n := range names {
		i := slices.IndexFunc(stages, func(s stage) bool { return s.name == n })
		if i < 0 {
			return nil, fmt.Errorf("--stage %s: there is none of this name; use one of %s", n, strings.Join(stageNames(), ", "))
		}
		picked = append(picked, stages[i])
	}
	return picked, nil
}

// emulatedScale is by how much tests shrink where every instruction is emulated.
const emulatedScale = 16

// The bounds of a boot, by the guest's clock and by the host's.
const (
	suiteLimit = 40 * time.Minute
	bootLimit  = 90 * time.Minute
)

// featuresStep is the name of the step that asks for features.
const featuresStep = "features"

// steps are what the guest runs in a stage.
func (s *stage) steps(b *build, o *options) []plan.Step {
	env := []string{fmt.Sprintf("%s=%d", testkit.ScaleVar, o.scale)}
	if s.exact {
		env = append(env, testkit.ExactVar+"=1")
	}
	steps := []plan.Step{{Name: featuresStep, Dir: b.top, Args: []string{b.guest, "features", b.trunkline}, Env: env, TimeoutS: 300}}
	for _, suite := range suites {
		if _, built := b.tests[suite]; !built || s.suites != nil && !slices.Contains(s.suites, suite) {
			continue
		}
		steps = append(steps, s.testStep(b, o, suite, env))
	}
	return steps
}

func (s *stage) testStep(b *build, o *options, suite string, env []string) plan.Step {
	args := []string{b.tests[suite], "-test.v=test2json", "-test.paniconexit0", "-test.timeout=" + suiteLimit.String()}
	run := s.run
	if o.run != "" {
		run = o.run
	}
	if run != "" {
		args = append(args, "-test.run="+run)
	}
	return plan.Step{Name: stepName(suite), Dir: b.top + "/" + suite, Args: args, Env: env, TimeoutS: int(suiteLimit/time.Second) + 60}
}

// stepName is a suite's name as a file.
func stepName(suite string) string { return strings.ReplaceAll(suite, "/", "-") }
