package rig

import "syscall"

// attributes make a process the leader of its own group and have the kernel kill it when its starter dies. (The kernel
// watches the thread that started it; the Go runtime ends a thread only where a goroutine that locked itself to it ends,
// which none here does.)
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
