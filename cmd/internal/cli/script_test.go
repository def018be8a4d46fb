// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"trunkline": func() {
		os.Exit(Run(context.Background(), scriptEnv(os.Getenv("WORK")), os.Args[1:]))
	}, "book-agent": bookAgent})
}

// scriptEnv keeps a script's defaults inside its own directory.
func scriptEnv(work string) Env {
	return Env{Stdout: os.Stdout, Stderr: os.Stderr, ConfigPath: filepath.Join(work, "trunkline.yaml"),
		StateRoot: filepath.Join(work, "state"), RunRoot: filepath.Join(work, "run")}
}

// TestScripts runs the sessions in testdata/script; each reads like what a person types and sees.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script", RequireExplicitExec: true})
}
