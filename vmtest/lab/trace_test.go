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
	// 200 ms with 40 opportunities, 100 ms with 4, 200 ms with none: 500 ms of about 1 Mbit/s on average.
	tr := &Trace{}
	for i := range 40 {
		tr.at = append(tr.at, uint32(i*5))
	}
	tr.at = append(tr.at, 220, 240, 260, 280, 500)
	l := newLab(t, Options{Trace: tr, RTT: 20 * time.Millisecond, OneWay: true, NoIPv6: true, QueueBytes: 100e3})
	to, from := datagrams(t, l)
	const periods = 8
	l.Link.Restart(1)
	end := time.Now().Add(periods * tr.Length())
	go func() {
		b := make([]byte, wanMTU-28)
		for time.Now().Before(end) { // more than it passes
			_, _ = from.Write(b)
			time.Sleep(2 * time.Millisecond)
		}
	}()
	packets := 0
	_ = to.SetReadDeadline(end.Add(l.opts.RTT))
	for {
		if _, _, err := to.ReadFrom(make([]byte, wanMTU)); err != nil {
			break
		}
		packets++
	}
	got := float64(packets) * wanMTU * 8 / (periods * tr.Length()).Seconds()
	between(t, "share of the trace's mean rate", got/tr.Rate(), 0.95, 1.02)
	if st := l.Link.AB.Stats(); st.QueueDrops == 0 {
		t.Errorf("more than the trace passes fits into its queue: %+v", st)
	}
}
