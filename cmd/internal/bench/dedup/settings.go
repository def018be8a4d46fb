// SPDX-License-Identifier: Apache-2.0

package dedup

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/trunkline/trunkline/cmd/internal/units"
	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// settings are the bench's own flags, as given and as read.
type settings struct {
	corpus corpus
	runs   int
	each   bool

	codecs, stages, cutTexts                        []string
	rateText, effortText, leastText, mostText, hist string

	cuts    []cut
	rate    float64 // bits a second; 0: the sink takes everything at once
	effort  codec.Effort
	history int64 // bytes; 0: more than the files of a trip need
}

const maxRuns = 1000

func (e *experiment) flags(f *pflag.FlagSet) {
	f.StringVar(&e.corpus.dir, "dir", "", "directory of files to send (default: generated ones)")
	f.IntVar(&e.runs, "runs", 0, "how often each is run with reads of the first --cut; with the others once (default 3, with --quick 1)")
	f.StringSliceVar(&e.codecs, "codec", nil, "which codecs (default all: "+strings.Join(codecKinds(), ", ")+")")
	f.StringSliceVar(&e.stages, "stage", nil, "which second stages (default all: "+strings.Join(codec.Stages(), ", ")+")")
	f.StringSliceVar(&e.cutTexts, "cut", nil, "sizes of reads: like 1460 or 64KiB, random, whole (default 1MiB,1460,64KiB,random,whole, with --quick 1MiB)")
	f.BoolVar(&e.each, "each", false, "make each read a block of its own")
	f.StringVar(&e.rateText, "rate", "", "rate of the link that the sink drains at, like 10Mbit (default: it takes everything at once)")
	f.StringVar(&e.effortText, "effort", codec.EffortDefault.String(), "work for new bytes without --rate: raw, references, fastest, default or better")
	f.StringVar(&e.leastText, "least", "64KiB", "size of the smallest file of --dir that is sent")
	f.StringVar(&e.mostText, "most", "256MiB", "how much of each file is sent at most")
	f.StringVar(&e.hist, "history", "", "what each end remembers, like 256MiB (default: more than the files need)")
}

// check reads the flags.
func (e *experiment) check() (err error) {
	if e.runs < 0 || e.runs > maxRuns {
		return fmt.Errorf("--runs %d must be from 1 to %d", e.runs, maxRuns)
	}
	if err := e.chooseSpecs(); err != nil {
		return err
	}
	for _, s := range e.cutTexts {
		c, err := parseCut(s)
		if err != nil {
			return err
		}
		e.cuts = append(e.cuts, c)
	}
	if e.rateText != "" {
		r, err := units.Rate(e.rateText)
		if err != nil {
			return fmt.Errorf("--rate: %w", err)
		}
		if r < 1000 {
			return fmt.Errorf("--rate %s is less than 1kbit", e.rateText)
		}
		e.rate = float64(r)
	}
	if e.effort, err = parseEffort(e.effortText); err != nil {
		return err
	}
	return e.sizes()
}

func (e *experiment) sizes() error {
	for _, s := range []struct {
		flag, text string
		to         *int64
	}{{"--least", e.leastText, &e.corpus.least}, {"--most", e.mostText, &e.corpus.most}, {"--history", e.hist, &e.history}} {
		if s.text == "" {
			continue
		}
		n, err := units.Size(s.text)
		if err != nil {
			return fmt.Errorf("%s: %w", s.flag, err)
		}
		*s.to = n
	}
	if e.corpus.most < 1 || e.corpus.most < e.corpus.least {
		return fmt.Errorf("--most %s is less than --least %s", e.mostText, e.leastText)
	}
	return nil
}

func (e *experiment) chooseSpecs() error {
	for _, name := range e.codecs {
		if _, err := codec.ParseKind(name); err != nil {
			return fmt.Errorf("--codec: %w", err)
		}
	}
	for _, name := range e.stages {
		if _, err := codec.ParseStage(name); err != nil {
			return fmt.Errorf("--stage: %w", err)
		}
	}
	for _, name := range codecKinds() {
		kind, err := codec.ParseKind(name)
		if err != nil || len(e.codecs) > 0 && !slices.Contains(e.codecs, name) {
			continue
		}
		for _, stage := range []codec.Stage{codec.StageNone, codec.Zstd, codec.Zlib} {
			if len(e.stages) == 0 || slices.Contains(e.stages, stage.String()) {
				e.specs = append(e.specs, codec.Spec{Kind: kind, Stage: stage})
			}
		}
	}
	return nil
}

// codecKinds are the names of the codecs that there are.
func codecKinds() []string { return codec.Kinds() }

func parseEffort(s string) (codec.Effort, error) {
	for e := range codec.Efforts {
		if e.String() == s {
			return e, nil
		}
	}
	return 0, fmt.Errorf("--effort %q is not known; use raw, references, fastest, default or better", s)
}

// quickBytes of files are sent with --quick.
const quickBytes = 10 << 20

func (e *experiment) defaults(quick bool, seed uint64) {
	e.corpus.seed = seed
	if e.runs == 0 {
		e.runs = 3
		if quick {
			e.runs = 1
		}
	}
	if len(e.cuts) == 0 {
		texts := []string{"1MiB", "1460", "64KiB", "random", "whole"}
		if quick {
			texts = texts[:1]
		}
		for _, s := range texts {
			c, err := parseCut(s)
			if err != nil {
				panic(err) // they are constants
			}
			e.cuts = append(e.cuts, c)
		}
	}
	if quick {
		e.corpus.total = quickBytes
	}
}
