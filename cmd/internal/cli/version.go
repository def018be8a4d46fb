// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/proxy/wire"
)

// version is what version --json prints.
type version struct {
	Version  string `json:"version"`
	Protocol string `json:"protocol"` // of the peers, MAJOR.MINOR; the major must be the same at both ends
	Kernel   string `json:"kernel"`
	Go       string `json:"go"`
	Arch     string `json:"arch"`
}

func versionCommand(env Env) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "version",
		Short:   "Versions of trunkline, of the peer protocol and of the kernel",
		Example: "  trunkline version --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				return writeJSON(env.Stdout, versions())
			}
			fmt.Fprintln(env.Stdout, versions())
			return nil
		},
	}
	jsonFlag(c, &asJSON)
	return c
}

func versions() version {
	return version{
		Version: Version, Protocol: fmt.Sprintf("%d.%d", wire.Major, wire.Minor), Kernel: kernelRelease(),
		Go: runtime.Version(), Arch: runtime.GOARCH,
	}
}

func (v version) String() string {
	return fmt.Sprintf("trunkline %s, peer protocol %s, Linux %s, %s %s", v.Version, v.Protocol, v.Kernel, v.Go, v.Arch)
}

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}
