// Package accesslog reads the requests that a proxy has logged, in the order in which they came: Envoy's default text, Istio's,
// JSON of any field names, the Common Log Format and the Combined one, as they are or gzipped, from several files at once.
//
//	lines of each file → parser of its format → Reader, which puts them in order → Log, which merges the files
//
// Memory is bounded whatever the files: a line has a longest length, and a Reader looks ahead by so many lines and no more.
package accesslog

import (
	"errors"
	"fmt"
	"strings"

	"sluice/shared/instant"
)

// Bounds on what is read.
const (
	// MaxLine is the longest line, in bytes. A longer one is malformed.
	MaxLine = 1 << 20
	// MaxWanted is how many fields, besides those of Entry, may be asked for.
	MaxWanted = 64
	// MaxProblems is how many malformed lines are told of one by one.
	MaxProblems = 5
	// MaxFiles is how many files are merged.
	MaxFiles = 256
)

// Entry is a request as a log has it. Its strings are parts of the log, and what a line has not is empty.
type Entry struct {
	// At is when the request came, in microseconds since 1970; of a log that notes when it was answered, that.
	At instant.Instant
	// Method, Path with its query, and Authority are of the request line or of fields.
	Method, Path, Authority string
	// Client is the address of the peer, with or without its port.
	Client string
	// Status is what was answered; 0 where that was not logged.
	Status int

	wanted  []string
	present uint64
}

// Wanted gives the i-th of the fields that Config.Want asks for; false where the line has none of its names.
func (e *Entry) Wanted(i int) (string, bool) { return e.wanted[i], e.present>>i&1 == 1 }

// Present gives, bit by bit, which of the fields that Config.Want asks for the line has.
func (e *Entry) Present() uint64 { return e.present }

func (e *Entry) want(i int, value string) {
	e.wanted[i] = value
	e.present |= 1 << i
}

// CopyFrom makes e the same as another entry, which may be used again then.
func (e *Entry) CopyFrom(other *Entry) {
	room := e.wanted
	if len(room) != len(other.wanted) {
		room = make([]string, len(other.wanted))
	}
	copy(room, other.wanted)
	*e = *other
	e.wanted = room
}

// reset forgets what the last line said.
func (e *Entry) reset(wanted int) {
	if len(e.wanted) != wanted {
		e.wanted = make([]string, wanted)
	}
	clear(e.wanted)
	*e = Entry{wanted: e.wanted}
}

// Format is how the lines of a log are written.
type Format uint8

// The formats. Auto finds out which one it is by the first lines.
const (
	Auto Format = iota
	// Envoy is Envoy's default: https://www.envoyproxy.io/docs/envoy/latest/configuration/observability/access_log/usage.
	Envoy
	// Istio is the default of Istio's proxies.
	Istio
	// JSON has an object on each line.
	JSON
	// Common and Combined are Apache's and nginx's.
	Common
	Combined
)

// Formats are the names of the formats, in the order of their numbers.
var Formats = []string{"auto", "envoy", "istio", "json", "common", "combined"}

// String gives the format's name.
func (f Format) String() string {
	if int(f) < len(Formats) {
		return Formats[f]
	}
	return "unknown"
}

// ParseFormat reads a format's name.
func ParseFormat(name string) (Format, bool) {
	for i, n := range Formats {
		if n == name {
			return Format(i), true
		}
	}
	return Auto, false
}

// Role is a part of Entry that a field of JSON stands for.
type Role uint8

// The roles. Request is a whole request line, "GET /path HTTP/1.1", which stands for method and path where those have no field
// of their own.
const (
	Time Role = iota
	Method
	Path
	Authority
	Client
	Status
	Request
	roles
)

// Roles are the names of the roles, in the order of their numbers.
var Roles = []string{"time", "method", "path", "authority", "client", "status", "request"}

// ParseRole reads a role's name.
func ParseRole(name string) (Role, bool) {
	for i, n := range Roles {
		if n == name {
			return Role(i), true
		}
	}
	return 0, false
}

// usual are the names that a role's field has by habit, the likeliest first. A dot leads into an object.
var usual = [roles][]string{
	Time: {"start_time", "time", "timestamp", "@timestamp", "ts", "time_iso8601", "time_local", "msec", "datetime", "date"},
	Method: {
		"method", ":method", "request_method", "req_method", "http_method", "verb", "request.method", "http.request.method",
	},
	Path: {
		"x_envoy_original_path", "path", ":path", "request_uri", "req_path", "request_path", "uri", "url", "request.uri", "request.path",
		"url.path",
	},
	Authority: {"authority", ":authority", "host", "http_host", "req_authority", "vhost", "server_name", "request.host"},
	Client: {
		"downstream_direct_remote_address", "downstream_remote_address", "downstream_remote_address_without_port", "remote_addr",
		"remote_address", "remote_ip", "client_ip", "client_addr", "client", "clientip", "request.remote_ip", "request.client_ip",
		"request.remote_addr",
	},
	Status:  {"response_code", "status", "status_code", "code", "http_status"},
	Request: {"request", "request_line"},
}

// Config says what is read of a log.
type Config struct {
	Format Format
	// Fields name a role's field instead of the usual names. Of JSON it is a name, or several with dots between them that lead
	// into objects; of the other formats the name of one of their fields.
	Fields map[Role]string
	// Want are the fields that Entry.Wanted gives: of each the names that it may have, the likeliest first. At most MaxWanted.
	Want [][]string
	// Ahead is how many lines of a file may be read ahead to put them in order; 0: DefaultAhead.
	Ahead int
}

// DefaultAhead is about 20 MB of what Envoy writes.
const DefaultAhead = 1 << 14

func (c *Config) check() error {
	switch {
	case int(c.Format) >= len(Formats):
		return fmt.Errorf("format %d: want one of %s", c.Format, strings.Join(Formats, ", "))
	case len(c.Want) > MaxWanted:
		return fmt.Errorf("%d fields: want at most %d", len(c.Want), MaxWanted)
	case c.Ahead < 0:
		return fmt.Errorf("%d lines ahead: want 0 or more", c.Ahead)
	}
	return nil
}

// names gives what a role's field may be called.
func (c *Config) names(r Role) []string {
	if name := c.Fields[r]; name != "" {
		return []string{name}
	}
	return usual[r]
}

// HeaderNames gives the names by which the value of a request's header, in lower case, is usually logged.
func HeaderNames(header string) []string {
	low := strings.ReplaceAll(header, "-", "_")
	names := []string{header, low, "req_" + low, "http_" + low, "request_" + low}
	for _, in := range []string{"headers", "request_headers", "request.headers"} {
		names = append(names, in+"."+header, in+"."+low)
	}
	switch header {
	case "content-length":
		names = append(names, "bytes_received", "request_length", "request.content_length")
	case "x-request-id":
		names = append(names, "request_id", "req_id")
	case "referer":
		names = append(names, "referrer", "http_referrer")
	}
	return names
}

// Problem is a line that could not be read.
type Problem struct {
	File string `json:"file"`
	// Line counts from 1.
	Line int64 `json:"line"`
	// Why says what was expected, Text how the line begins.
	Why  string `json:"why"`
	Text string `json:"text"`
}

// Counts is what was read so far.
type Counts struct {
	// Lines are those that are not empty; Malformed of them could not be read.
	Lines, Malformed int64
	// Moved came after a later one and were put in order. Late came too late for that, and count as if they had come with the
	// latest before.
	Moved, Late int64
	// Problems tell of the first of the malformed.
	Problems []Problem
}

func (c *Counts) malformed(file string, line int64, why error, text string) {
	c.Malformed++
	if len(c.Problems) < MaxProblems {
		c.Problems = append(c.Problems, Problem{File: file, Line: line, Why: why.Error(), Text: clip(text)})
	}
}

// clip gives the beginning of what stands in a log, fit to be shown.
func clip(text string) string {
	const most = 120
	cut := text
	if len(cut) > most {
		cut = cut[:most]
	}
	shown := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0xfffd {
			return '.'
		}
		return r
	}, cut)
	if len(text) > most {
		shown += "…"
	}
	return strings.Clone(shown)
}

// What is wrong with lines.
var (
	errTooLong = fmt.Errorf("the line is longer than %d bytes", MaxLine)
	errTime    = errors.New("no time that can be read: want one such as 2026-04-15T20:17:00.310Z, 15/Apr/2026:20:17:00 +0000 or seconds since 1970")
	errRequest = errors.New(`no request: want "METHOD PATH PROTOCOL"`)
	errObject  = errors.New("no whole JSON object")
)
