// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Whatever went wrong, people get one line of why and one of what to do.
func TestWhyNot(t *testing.T) {
	for name, c := range map[string]struct {
		err            error
		detail, remedy string
	}{
		"verifier":  {fmt.Errorf("loading: %w", &ebpf.VerifierError{Cause: unix.EINVAL, Log: []string{"0: R1=ctx()", "invalid return type"}}), "verifier refuses it", "needs Linux 6.1"},
		"forbidden": {fmt.Errorf("attaching: %w", unix.EPERM), "not permitted", "bpftool cgroup tree"},
		"else":      {errors.New("first line\nsecond line"), "first line", "needs Linux 6.1"},
	} {
		t.Run(name, func(t *testing.T) {
			if noBTF() && name == "verifier" {
				c.detail, c.remedy = "carries no BTF", "CONFIG_DEBUG_INFO_BTF"
			}
			detail, remedy := whyNot(c.err, minKernel)
			if !strings.Contains(detail, c.detail) || !strings.Contains(remedy, c.remedy) {
				t.Errorf("%q, %q; want %q, %q", detail, remedy, c.detail, c.remedy)
			}
			if strings.Contains(detail+remedy, "\n") {
				t.Errorf("more than a line: %q, %q", detail, remedy)
			}
		})
	}
}

// A busy host is another matter than a faulty kernel.
func TestOnlyOutOfTime(t *testing.T) {
	slow := SpliceFailure{"hash", errors.Join(fmt.Errorf("read: %w", os.ErrDeadlineExceeded), errors.New("write"))}
	late := SpliceFailure{"release", fmt.Errorf("not run: %w", context.DeadlineExceeded)}
	fault := SpliceFailure{"fionread", errors.New("1000 bytes are waiting, the kernel says 0")}
	for _, c := range []struct {
		failures []SpliceFailure
		want     bool
	}{
		{[]SpliceFailure{slow, late}, true},
		{[]SpliceFailure{fault}, false},
		{[]SpliceFailure{fault, slow, late}, false},
	} {
		err := &SpliceTestError{c.failures}
		if onlyOutOfTime(err) != c.want || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: want %v", err, c.want)
		}
	}
}
