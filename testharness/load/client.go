package load

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Request is a request as it goes over the wire.
type Request struct{ raw []byte }

// NewRequest builds an HTTP/1.1 request. Header values are written as they are, whatever bytes they hold; a body is sent
// with its length.
func NewRequest(method, path string, headers [][2]string, body string) Request {
	var b strings.Builder
	b.WriteString(method + " " + path + " HTTP/1.1\r\nhost: loopback\r\n")
	for _, h := range headers {
		b.WriteString(h[0] + ": " + h[1] + "\r\n")
	}
	if body != "" || method == http.MethodPost || method == http.MethodPut {
		b.WriteString("content-length: " + strconv.Itoa(len(body)) + "\r\n")
	}
	b.WriteString("\r\n" + body)
	return Request{raw: []byte(b.String())}
}

// Client is one keep-alive connection, for one goroutine. It never sends a request twice.
type Client struct {
	// Address is HOST:PORT.
	Address string
	// Timeout bounds a request.
	Timeout time.Duration

	connection net.Conn
	reader     *bufio.Reader
}

// Connect opens the connection if it is not open.
func (c *Client) Connect() error {
	if c.connection != nil {
		return nil
	}
	connection, err := dial(c.Address)
	if err != nil {
		return err
	}
	c.connection, c.reader = connection, bufio.NewReaderSize(connection, 4<<10)
	return nil
}

// Close closes the connection; the next Connect opens another.
func (c *Client) Close() {
	if c.connection != nil {
		c.connection.Close()
		c.connection, c.reader = nil, nil
	}
}

// Send sends a request on the open connection and reads the answer to its end. It calls answered when the answer's head is
// in. After an error the connection is closed.
func (c *Client) Send(request Request, answered func()) (status int, err error) {
	response, err := c.exchange(request, answered)
	if err != nil {
		c.Close()
		return 0, err
	}
	_, err = io.Copy(io.Discard, response.Body)
	response.Body.Close()
	if err != nil || response.Close {
		c.Close()
	}
	return response.StatusCode, err
}

func (c *Client) exchange(request Request, answered func()) (*http.Response, error) {
	if err := c.connection.SetDeadline(time.Now().Add(c.Timeout)); err != nil {
		return nil, err
	}
	if _, err := c.connection.Write(request.raw); err != nil {
		return nil, err
	}
	response, err := http.ReadResponse(c.reader, nil)
	answered()
	return response, err
}
