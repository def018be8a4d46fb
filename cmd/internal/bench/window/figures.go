// SPDX-License-Identifier: Apache-2.0

package window

import "time"

const (
	// binTime is how finely the receiver tells bytes by time.
	binTime = 20 * time.Millisecond
	// fullShare of the ceiling counts as full.
	fullShare = 0.9
	// fullBins is how many bins must be full on average, the first of them by itself.
	fullBins = 5
)

// timeTo90 is when the path was full, in seconds from the start of the bins, bytes of all streams: the end of the first bin with
// 90 % of the ceiling, in bit/s, such that the five bins from it on average have 90 %, too. ok is false where it never was.
func timeTo90(bins []uint64, ceiling float64) (seconds float64, ok bool) {
	full := fullShare * ceiling / 8 * binTime.Seconds() // bytes
	for i := 0; i+fullBins <= len(bins); i++ {
		if float64(bins[i]) < full {
			continue
		}
		total := uint64(0)
		for _, b := range bins[i : i+fullBins] {
			total += b
		}
		if float64(total) >= fullBins*full {
			return float64(i+1) * binTime.Seconds(), true
		}
	}
	return 0, false
}

// goodputMbps over the first so many seconds; nil where the run was shorter.
func goodputMbps(bins []uint64, over, run time.Duration) *float64 {
	if run < over {
		return nil
	}
	v := float64(bytesIn(bins, over)) * 8 / 1e6 / over.Seconds()
	return &v
}

// bytesIn the first part of the bins.
func bytesIn(bins []uint64, over time.Duration) (total uint64) {
	for _, b := range bins[:min(len(bins), int(over/binTime))] {
		total += b
	}
	return total
}

// add puts the bins of a stream to those of all.
func add(all, bins []uint64) []uint64 {
	for len(all) < len(bins) {
		all = append(all, 0)
	}
	for i, b := range bins {
		all[i] += b
	}
	return all
}

// peakTogether is the most that both ends held at a time.
func peakTogether(a, b held) (most uint64) {
	at := func(h held, bin int64) uint64 {
		if i := bin - h.First; i >= 0 && i < int64(len(h.Peaks)) {
			return h.Peaks[i]
		}
		return 0
	}
	for _, h := range []held{a, b} {
		for i := range h.Peaks {
			bin := h.First + int64(i)
			most = max(most, at(a, bin)+at(b, bin))
		}
	}
	return most
}
