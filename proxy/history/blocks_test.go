// SPDX-License-Identifier: Apache-2.0

package history

import "golang.org/x/sys/unix"

// blocks returns the bytes that a file takes on the disk.
func blocks(path string) (int64, error) {
	var st unix.Stat_t
	err := unix.Stat(path, &st)
	return st.Blocks * 512, err
}
