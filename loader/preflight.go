// SPDX-License-Identifier: Apache-2.0

package loader

// Preflight says what would keep Load from running at all here, for a cgroup below the cgroup2 mount. It changes nothing.
func Preflight(cgroup string) []error {
	var errs []error
	if err := checkCapabilities(); err != nil {
		errs = append(errs, err)
	}
	if _, err := findCgroup("/proc/self/mountinfo", cgroup); err != nil {
		errs = append(errs, err)
	}
	return errs
}
