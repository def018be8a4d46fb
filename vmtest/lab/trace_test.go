// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/trunkline/trunkline/internal/testkit"
)

func TestReadTrace(t *testing.T) {
	tr, err := ReadTrace(strings.NewReader("0\n0\n3\n10\n"))
	if err != nil {
		t.Fatal(err)
	}
	if tr.Length() != 10*time.Millisecond || tr.Rate() != 4*1500*8/0.010 {
		t.Errorf("%v at %g bit/s", tr.Length(), tr.Rate())
	}
	if _, err := ReadTrace(strings.NewReader("7")); err != nil {
		t.Errorf("one line without an end: %v", err)
	}
}

func TestReadBadTrace(t *testing.T) {
	broken := errors.New("broken")
	for in, want := range map[string]string{
		"":                                     "line 0: it ends at 0 ms",
		"0\n0\n":                               "line 2: it ends at 0 ms",
		"1\n\n2\n":                             `line 2: "" is not a number`,
		"1\n# two\n":                           `line 2: "# two" is not a number`,
		"1\n-2\n":                              `line 2: "-2" is not a number`,
		"1\n+2\n":                              `line 2: "+2" is not a number`,
		"1\n1.5\n":                             `line 2: "1.5" is not a number`,
		"1 \n":                                 `line 1: "1 " is not a number`,
		"5\n4\n":                               "line 2: 4 ms lies before the line above, 5",
		"86400001\n":                           "line 1: 86400001 ms is beyond 24h",
		"99999999999\n":                        `line 1: "99999999999" is not a number`,
		"1\n" + strings.Repeat("1", 1<<20):     "line 2: longer than 16 bytes",
		strings.Repeat("1\n", maxTraceLines+1): "more than 1048576 lines",
	} {
		_, err := ReadTrace(strings.NewReader(in))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", in, err, want)
		}
	}
	_, err := ReadTrace(io.MultiReader(strings.NewReader("1\n"), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("a reader that fails: %v", err)
	}
}

// What arrives over a trace is what the trace passes, gaps and repetitions included; the way back has its rate.
func TestTraceLinkExact(t *testing.T) {
	testkit.NeedTime(t)
	// 200 ms with 40 opportunities, 100 ms with 4, 200 ms with none: about 1 Mbit/s on average.
	tr := &Trace{}
	for i := range 40 {
		tr.at = append(tr.at, uint32(i*5))
	}
	tr.at = append(tr.at, 220, 240, 260, 280, 500)
	l := newLab(t, Options{Trace: tr, RTT: 20 * time.Millisecond, OneWay: true, NoIPv6: true, QueueBytes: 1e6})
	to, from := datagrams(t, l)
	const periods = 8
	begin := time.Now()
	l.Link.Restart(1)
	for range len(tr.at) * (periods + 2) { // more than it passes, all in the queue at once
		if _, err := from.Write(make([]byte, wanMTU-28)); err != nil {
			t.Fatal(err)
		}
	}
	go func() { // away with what arrives
		for err := error(nil); err == nil; {
			_, _, err = to.ReadFrom(make([]byte, wanMTU))
		}
	}()
	time.Sleep(time.Until(begin.Add(periods*tr.Length() + l.opts.RTT)))
	st := l.Link.AB.Stats()
	passed := time.Since(begin) - l.opts.RTT
	most := len(tr.at) * int(passed/tr.Length())
	for _, ms := range tr.at {
		if time.Duration(ms)*time.Millisecond <= passed%tr.Length() {
			most++
		}
	}
	least := most * 8 / 10 // on a busy machine
	if testkit.Exact() {
		least = most - 4 // the emulator's own processor is the one that counts, too
	}
	between(t, "packets", int(st.Delivered), least, most)
	between(t, "mean rate", float64(most)*wanMTU*8/passed.Seconds()/tr.Rate(), 0.9, 1.1)
	if st.QueueDrops != 0 {
		t.Errorf("dropped before the queue was full: %+v", st)
	}
}
