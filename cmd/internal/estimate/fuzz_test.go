// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"bytes"
	"io"
	"os"
	"testing"
)

// Whatever a capture holds, it is read or refused.
func FuzzCapture(f *testing.F) {
	for _, name := range []string{"x.pcap", "x.pcapng"} {
		f.Add(sample(f, name))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Run(Options{Paths: []string{"-"}, History: 1 << 20, Stdin: bytes.NewReader(data), Stderr: io.Discard})
		if err == nil && r.Total.RawBytes == 0 {
			t.Error("neither bytes nor an error")
		}
	})
}

func sample(f *testing.F, name string) []byte {
	p := newPcap(f, name)
	w := p.wire(80, 40000)
	w.open()
	w.send(fromClient, 100, noise(1, 300))
	w.close()
	p.done()
	data, err := os.ReadFile(p.path)
	if err != nil {
		f.Fatal(err)
	}
	return data
}
