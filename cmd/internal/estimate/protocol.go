// SPDX-License-Identifier: Apache-2.0

package estimate

import "bytes"

// protocolOf recognises what is encrypted from the first bytes of a direction: nothing can be saved of it.
func protocolOf(first []byte) string {
	switch {
	case bytes.HasPrefix(first, []byte("SSH-")):
		return "SSH"
	case isTLS(first):
		return "TLS"
	}
	return ""
}

// isTLS recognises a record, also in the middle of a connection.
func isTLS(b []byte) bool {
	const changeCipherSpec, applicationData = 20, 23
	if len(b) < 5 {
		return false
	}
	length := int(b[3])<<8 | int(b[4])
	return b[0] >= changeCipherSpec && b[0] <= applicationData && b[1] == 3 && b[2] <= 4 && length > 0 && length <= 1<<14+2048
}
