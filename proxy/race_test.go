// SPDX-License-Identifier: Apache-2.0

//go:build race

package proxy

// raceDetector says whether the race detector is in the binary, which makes everything larger.
const raceDetector = true
