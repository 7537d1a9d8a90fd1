//go:build unix && !linux

package rig

import "syscall"

// attributes make a process the leader of its own group. Without Linux' parent death signal a process can outlive a
// starter that is killed outright; one that stops in any other way stops its processes.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
