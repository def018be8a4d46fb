// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"slices"
	"time"
)

// FetchCommand is the hidden command by which the executable is the client.
const FetchCommand = "bench-relay-fetch" // bench-relay-fetch ADDRESS

// An order is one thing for the client to do, as JSON on its standard input.
type order struct {
	Kind  byte
	Seed  uint64
	Bytes int // of a fetch, or of one exchange
	Count int // of exchanges
}

// outcome is what an order came to.
type outcome struct {
	Took     time.Duration // until the last byte
	Exchange time.Duration // median
}

// FetchMain is the command FetchCommand. It connects, does what it is told, and ends with its input.
func FetchMain(args []string, stdin io.Reader, stdout io.Writer) error {
	d := net.Dialer{}
	d.SetMultipathTCP(false)
	c, err := d.DialContext(context.Background(), "tcp", args[0])
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", args[0], err)
	}
	defer c.Close()
	in, out, buf := json.NewDecoder(stdin), json.NewEncoder(stdout), make([]byte, 256<<10)
	for {
		var o order
		if err := in.Decode(&o); err != nil {
			return nil // the bench is done
		}
		do := fetch
		if o.Kind == kindEcho {
			do = exchange
		}
		result, err := do(c, o, buf)
		if err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		if err := out.Encode(result); err != nil {
			return fmt.Errorf("telling the result: %w", err)
		}
	}
}

func (o order) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(append(dst, o.Kind), o.Seed)
	return binary.BigEndian.AppendUint64(dst, uint64(o.Bytes))
}

// fetch gets bytes once the server has them.
func fetch(c net.Conn, o order, buf []byte) (outcome, error) {
	if _, err := c.Write(o.append(nil)); err != nil {
		return outcome{}, err
	}
	if _, err := io.ReadFull(c, buf[:1]); err != nil {
		return outcome{}, err
	}
	start := time.Now()
	if _, err := c.Write([]byte{goByte}); err != nil {
		return outcome{}, err
	}
	for left := o.Bytes; left > 0; {
		n, err := c.Read(buf[:min(left, len(buf))])
		if left -= n; err != nil && left > 0 {
			return outcome{}, fmt.Errorf("%d of %d bytes are missing: %w", left, o.Bytes, err)
		}
	}
	return outcome{Took: time.Since(start)}, nil
}

// exchange sends bytes and gets them back, one exchange after the other.
func exchange(c net.Conn, o order, buf []byte) (outcome, error) {
	took := make([]time.Duration, o.Count)
	begun := time.Now()
	for i := range took {
		message := o.append(nil)
		message = append(message, makeData(kindNoise, o.Seed+uint64(i), o.Bytes)...)
		start := time.Now()
		if _, err := c.Write(message); err != nil {
			return outcome{}, err
		}
		if _, err := io.ReadFull(c, buf[:o.Bytes]); err != nil {
			return outcome{}, err
		}
		took[i] = time.Since(start)
	}
	slices.Sort(took)
	return outcome{Took: time.Since(begun), Exchange: took[len(took)/2]}, nil
}
