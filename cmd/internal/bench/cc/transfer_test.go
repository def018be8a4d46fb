// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// receiverFor runs a receiver on a loopback address of the test's own, to the end of the test's process.
func receiverFor(t *testing.T, address string) *json.Decoder {
	t.Helper()
	out, w := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- ReceiveMain([]string{address, "5201"}, w) }()
	lines := bufio.NewReader(out)
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err, <-ended)
	}
	return json.NewDecoder(lines)
}

// send runs a sender in this process.
func send(t *testing.T, o order) ([]sent, error) {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = SendMain([]string{string(text)}, strings.NewReader("go\n"), &out)
	if err != nil {
		return nil, err
	}
	rest, ok := bytes.CutPrefix(out.Bytes(), []byte("ready\nconnected\n"))
	if !ok {
		t.Fatalf("the sender said %.40q", out.String())
	}
	var all []sent
	if err := json.Unmarshal(rest, &all); err != nil {
		t.Fatal(err)
	}
	return all, nil
}

// A number of bytes arrives exactly, of several flows each, also where it is no multiple of what is written at once, and less
// than a header.
func TestBytesAreExact(t *testing.T) {
	const address = "127.81.84.1"
	got := receiverFor(t, address)
	for _, n := range []uint64{20, headerSize, 100_001, 3 << 20} {
		all, err := send(t, order{Address: netip.MustParseAddr(address), Port: 5201, Congestion: "reno", Flows: 2, FirstID: 7, Bytes: n,
			Sample: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			var r received
			if err := got.Decode(&r); err != nil {
				t.Fatal(err)
			}
			if s.Bytes != n || r.Bytes != n || s.Congestion != "reno" || s.First != "reno" {
				t.Errorf("%d bytes: sent %+v, received %+v", n, s, r)
			}
			if n >= headerSize && (r.ID != 7 && r.ID != 8 || r.LastNs <= s.StartNs-int64(time.Second) || len(s.Samples) == 0) {
				t.Errorf("%d bytes: received %+v, %d samples", n, r, len(s.Samples))
			}
			total := uint64(0)
			for _, b := range r.Bins {
				total += b
			}
			if n >= headerSize && total != n {
				t.Errorf("%d of %d bytes are in bins", total, n)
			}
		}
	}
}

// What comes after the time does not count, and the end of the time is the end of the flow.
func TestTime(t *testing.T) {
	const address = "127.81.84.2"
	got := receiverFor(t, address)
	start := time.Now()
	all, err := send(t, order{Address: netip.MustParseAddr(address), Port: 5201, Flows: 1, Time: 200 * time.Millisecond, Sample: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	var r received
	if err := got.Decode(&r); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < 200*time.Millisecond || r.InTime == 0 || r.InTime > r.Bytes || r.Failure != "" {
		t.Errorf("after %v: %+v", took, r)
	}
	if n := len(all[0].Samples); n < 2 || n > 21 {
		t.Errorf("%d samples", n)
	}
}

func TestUnknownAlgorithm(t *testing.T) {
	_, err := send(t, order{Address: netip.MustParseAddr("127.81.84.3"), Port: 5201, Congestion: "tl_none", Flows: 1, Bytes: 1000, Sample: time.Second})
	if err == nil || !strings.Contains(err.Error(), "giving a socket the congestion control tl_none: no such file") {
		t.Errorf("got %v", err)
	}
}

func TestNobodyListens(t *testing.T) {
	all, err := send(t, order{Address: netip.MustParseAddr("127.81.84.4"), Port: 5201, Flows: 1, Bytes: 1000, Sample: time.Second})
	if err == nil || !strings.Contains(err.Error(), "connecting to 127.81.84.4: connection refused") {
		t.Errorf("got %v, %v", all, err)
	}
}
