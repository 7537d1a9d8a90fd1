package e2e

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// answerWithin bounds what a request may take: with what a busy machine adds, and shorter than for ever.
const answerWithin = 20 * time.Second

// answer is an answer with its body.
type answer struct {
	status int
	header http.Header
	body   string
}

// ask sends one request to one of the Envoys over a connection of its own. Header values go out as they are.
func ask(t *testing.T, proxy int, method, path string, headers ...string) answer {
	t.Helper()
	connection, err := net.DialTimeout("tcp", listeners()[proxy], answerWithin)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(answerWithin)); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString(method + " " + path + " HTTP/1.1\r\nhost: e2e\r\nconnection: close\r\ncontent-length: 0\r\n")
	for i := 0; i < len(headers); i += 2 {
		b.WriteString(headers[i] + ": " + headers[i+1] + "\r\n")
	}
	// A proxy that refuses the head before it is through closes its side; that is its answer's business, not an error here.
	_, _ = io.WriteString(connection, b.String()+"\r\n")
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header, string(body)}
}

// admitted sends requests to the Envoys in turn and counts those that come through; any answer but 200 and 429 fails.
func admitted(t *testing.T, requests int, method, path string, headers ...string) int {
	t.Helper()
	count := 0
	for i := range requests {
		switch a := ask(t, i%envoyCount, method, path, headers...); a.status {
		case http.StatusOK:
			count++
		case http.StatusTooManyRequests:
		default:
			t.Errorf("%s %s %.80q: status %d: %s", method, path, headers, a.status, a.body)
		}
	}
	return count
}

func (a answer) json(t *testing.T) map[string]any {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal([]byte(a.body), &fields); err != nil {
		t.Fatalf("%q: %v", a.body, err)
	}
	return fields
}
