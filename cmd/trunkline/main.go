// SPDX-License-Identifier: Apache-2.0

// Command trunkline makes TCP over long, thin or lossy paths fast. See package cli for its commands.
package main

import (
	"context"
	"os"

	"github.com/trunkline/trunkline/cmd/internal/cli"
)

func main() {
	os.Exit(cli.Run(context.Background(), cli.System(), os.Args[1:]))
}
