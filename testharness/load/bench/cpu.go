package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of times in /proc: Linux shows them to programs in hundredths of a second on every architecture of ours.
const tick = 10 * time.Millisecond

// cpuTime is the time that a process, all of its threads, has had on a processor.
func cpuTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, fmt.Errorf("reading a process's CPU time: %w", err)
	}
	return parseStat(string(text))
}

// parseStat adds up utime and stime, fields 14 and 15 of proc(5). The second field, the name, is in parentheses and may
// hold anything.
func parseStat(text string) (time.Duration, error) {
	_, rest, found := cutLast(text, ") ")
	fields := strings.Fields(rest)
	if !found || len(fields) < 13 {
		return 0, fmt.Errorf("/proc/PID/stat is %q, want at least 15 fields", text)
	}
	var sum time.Duration
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/PID/stat: %w", err)
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}

func cutLast(s, separator string) (before, after string, found bool) {
	at := strings.LastIndex(s, separator)
	if at < 0 {
		return s, "", false
	}
	return s[:at], s[at+len(separator):], true
}

// residentBytes is how much memory of a process is in RAM.
func residentBytes(pid int) (int64, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0, fmt.Errorf("reading a process's memory: %w", err)
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0, fmt.Errorf("/proc/PID/statm is %q, want at least 2 fields", text)
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}
