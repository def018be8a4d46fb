// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/trunkline/trunkline/cmd/internal/estimate"
	"github.com/trunkline/trunkline/cmd/internal/units"
	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// Bounds of what an estimate remembers, in bytes.
const (
	leastHistory = 1 << 20
	mostHistory  = 1 << 40
)

func estimateCommand(env Env) *cobra.Command {
	o := estimate.Options{Stdin: os.Stdin, Stderr: env.Stderr}
	var asJSON bool
	var history, kind, stage string
	c := &cobra.Command{
		Use:   "estimate FILE|DIR|PCAP...",
		Short: "What deduplication would save on your files and traffic",
		Long: "estimate sends files, the files below directories, and what TCP carried in captures (pcap, pcapng, also .gz) through an\n" +
			"encoder and a decoder in this process, in the order in which they are named, and says what would cross the WAN and why. No\n" +
			"peer and no root is needed, and files may be of any size. Each end has one history for everything; in a capture, one for\n" +
			"what clients send and one for what servers send, as if all clients were at one site and all servers at the other.\n\n" +
			"Packets out of order are put in order, retransmissions count once, and what the capture lacks is told. What is\n" +
			"encrypted (TLS, SSH) is recognised: nothing can be saved of it. - is standard input.",
		Example: "  trunkline estimate backup-monday.tar backup-tuesday.tar\n" +
			"  trunkline estimate /srv/mirror --history 1GiB --json\n" +
			"  tcpdump -i eth0 -s 0 -w - tcp port 5432 | trunkline estimate -",
		Args: cobra.MinimumNArgs(1),
		PreRunE: func(_ *cobra.Command, args []string) (err error) {
			o.Paths = args
			if o.History, err = units.Size(history); err != nil {
				return fmt.Errorf("--history: %w", err)
			}
			if o.History < leastHistory || o.History > mostHistory {
				return fmt.Errorf("--history %s must be from 1MiB to 1TiB", history)
			}
			if o.Spec.Kind, err = codec.ParseKind(kind); err != nil {
				return fmt.Errorf("--codec: %w", err)
			}
			if o.Spec.Stage, err = codec.ParseStage(stage); err != nil {
				return fmt.Errorf("--stage: %w", err)
			}
			return nil
		},
		RunE: func(*cobra.Command, []string) error {
			r, err := estimate.Run(o)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(env.Stdout, r)
			}
			r.Print(env.Stdout)
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&history, "history", "256MiB", "what each end remembers; memory is used up to twice that, four times with captures")
	f.StringVar(&kind, "codec", codec.Native.String(), "which codec: native, wanproxy or wanproxy2")
	f.StringVar(&stage, "stage", codec.Zstd.String(), "what compresses: zstd, zlib or none")
	f.BoolVar(&o.Plain, "plain", false, "take captures as files like any other")
	jsonFlag(c, &asJSON)
	return c
}
