// SPDX-License-Identifier: Apache-2.0

// Package guest is what runs inside a virtual machine: as its first process it lays the host's root under a layer of its
// own, runs the steps of the plan and powers off.
package guest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/vmtest/internal/image"
)

// The 9p tags.
const (
	RootTag  = "host"  // the host's root, read-only
	ShareTag = "share" // the shared directory
)

// Share is where a guest sees the shared directory.
const Share = "/run/vmtest"

// Init is the first process of a guest. It never returns.
func Init() {
	runtime.LockOSThread()
	if err := boot(); err != nil {
		fmt.Println("vmtest:", err)
	}
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		fmt.Println("vmtest: powering off:", err)
	}
	select {} // the first process must not end, or the kernel panics before it has powered off
}

func boot() error {
	if err := earlyMounts(); err != nil {
		return err
	}
	fmt.Printf("vmtest: %s up after %s\n", release(), uptime())
	if err := earlyModules(); err != nil {
		return err
	}
	if err := hostRoot(); err != nil {
		return err
	}
	if err := mountAt("tmpfs", "/run", "tmpfs", ""); err != nil { // the host's own would show its sockets and locks
		return err
	}
	if err := mountAt(ShareTag, Share, "9p", "trans=virtio,version=9p2000.L,msize=262144"); err != nil {
		return err
	}
	return work()
}

// earlyMounts makes the initramfs fit to load modules.
func earlyMounts() error {
	return errors.Join(
		mount("proc", "/proc", "proc", 0, ""),
		mount("sysfs", "/sys", "sysfs", 0, ""),
		ignore(mount("devtmpfs", "/dev", "devtmpfs", 0, ""), unix.EBUSY),
	)
}

func earlyModules() error {
	order, err := os.ReadFile(filepath.Join("/", image.ModuleDir, image.OrderFile))
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(string(order)) {
		if err := LoadModule(filepath.Join("/", image.ModuleDir, name)); err != nil {
			return err
		}
	}
	return nil
}

// LoadModule puts a module of the given file into the kernel; one that is there already is no error.
func LoadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("loading a module: %w", err)
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("loading %s: %w", path, err)
	}
	return nil
}

// hostRoot makes the host's root, with a layer in memory over it, the root of this process. What the guest writes is gone
// with it.
func hostRoot() error {
	const lower, upper, root = "/host", "/upper", "/root"
	if err := mount(RootTag, lower, "9p", unix.MS_RDONLY, "trans=virtio,version=9p2000.L,msize=262144,cache=loose"); err != nil {
		return err
	}
	if err := mount("tmpfs", upper, "tmpfs", 0, "size=75%"); err != nil {
		return err
	}
	for _, d := range []string{"u", "w"} {
		if err := os.Mkdir(filepath.Join(upper, d), 0o755); err != nil {
			return err
		}
	}
	if err := mount("overlay", root, "overlay", 0, "lowerdir="+lower+",upperdir="+upper+"/u,workdir="+upper+"/w"); err != nil {
		return err
	}
	for _, d := range []string{"dev", "proc", "sys"} {
		if err := unix.Mount("/"+d, filepath.Join(root, d), "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("moving /%s: %w", d, err)
		}
	}
	// pivot_root does not work on an initramfs: its mount is moved over instead, as switch_root does.
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("moving the root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("entering the root: %w", err)
	}
	return os.Chdir("/")
}

func mount(source, target, fstype string, flags uintptr, data string) error {
	if err := unix.Mount(source, target, fstype, flags, data); err != nil {
		return fmt.Errorf("mounting %s at %s: %w", fstype, target, err)
	}
	return nil
}

func ignore(err, which error) error {
	if errors.Is(err, which) {
		return nil
	}
	return err
}

// work runs the plan in a process of its own, so that the first process can wait for every orphan.
func work() error {
	pid, err := syscall.ForkExec("/proc/self/exe", []string{"vmtest", "guest", Share}, &syscall.ProcAttr{
		Dir: "/", Env: environment(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		return fmt.Errorf("starting the plan: %w", err)
	}
	for {
		var status syscall.WaitStatus
		got, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return fmt.Errorf("waiting for the plan: %w", err)
		case got == pid && status != 0:
			return fmt.Errorf("the plan's process ended with %d (signal %v)", status.ExitStatus(), status.Signal())
		case got == pid:
			return nil
		}
	}
}

// environment is what every step finds, beside its own.
func environment() []string {
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root", "USER=root", "LOGNAME=root", "SHELL=/bin/bash", "LANG=C.UTF-8", "TERM=dumb", "TMPDIR=/tmp",
	}
}

func release() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown kernel"
	}
	r, _, _ := bytes.Cut(u.Release[:], []byte{0})
	return string(r)
}

func uptime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano()).Round(10 * time.Millisecond)
}
