// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// unloadWait is how long a module may stay in use: the last sockets of a namespace go some time after it.
const unloadWait = 10 * time.Second

// LoadModule loads a module of the kernel. Whoever loads one unloads it in the end.
func LoadModule(name string) error { return modprobe(name) }

// UnloadModule unloads a module, and tries for a while.
func UnloadModule(name string) error {
	for deadline := time.Now().Add(unloadWait); ; time.Sleep(100 * time.Millisecond) {
		err := modprobe("-r", name)
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("unloading what was loaded: %w", err)
		}
	}
}

func modprobe(args ...string) error {
	if out, err := exec.Command("modprobe", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("modprobe %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
