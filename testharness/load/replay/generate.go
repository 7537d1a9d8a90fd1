package main

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"time"

	"sluice/controlsvc/accesslog"
)

// trace is what a log is made of.
type trace struct {
	lines int
	seed  uint64
	// over is how long the log's time is.
	over time.Duration
}

// began is when every log begins.
var began = time.Date(2026, 4, 15, 20, 0, 0, 0, time.UTC)

// generate writes a log: clients of which few send much, one that sends very much for a while, and lines in the order in
// which requests were answered, as Envoy writes them, while they tell when requests came. The same trace gives the same log.
func (t trace) generate(to io.Writer, format accesslog.Format) error {
	random := rand.New(rand.NewPCG(t.seed, t.seed))
	clients := rand.NewZipf(random, 1.2, 6, 20_000)
	tenants := rand.NewZipf(random, 1.2, 5, 500)
	w := bufio.NewWriterSize(to, 1<<20)
	apart := t.over / time.Duration(t.lines)
	for i := range t.lines {
		took := time.Duration(random.ExpFloat64() * 40 * float64(time.Millisecond))
		at := began.Add(time.Duration(i) * apart).Add(-min(took, 2*time.Second))
		client := clients.Uint64()
		address := fmt.Sprintf("10.%d.%d.%d", client>>16, client>>8&255, client&255)
		scraped := i > t.lines*2/5 && i < t.lines*9/20 && random.IntN(3) == 0
		if scraped {
			address = "10.9.9.9"
		}
		tenant := "tenant-" + strconv.FormatUint(tenants.Uint64(), 10)
		method, path := "GET", "/assets/"+strconv.Itoa(random.IntN(300))+".js"
		switch n := random.IntN(100); {
		case n < 8:
			method, path = "POST", "/v1/reports"
		case n < 40 || scraped:
			path = "/v1/search?q=" + strconv.Itoa(random.IntN(5000)) + "&page=" + strconv.Itoa(random.IntN(9))
		case n < 70:
			path = "/v1/items/" + strconv.Itoa(random.IntN(100_000))
		}
		id := fmt.Sprintf("%08x-%04x-4000-8000-%012x", random.Uint32(), random.IntN(1<<16), random.Uint64()>>16)
		size, millis := 200+random.IntN(9000), took.Milliseconds()
		const agent = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0 Safari/537.36"
		switch stamp := at.Format("2006-01-02T15:04:05.000Z"); format {
		case accesslog.JSON:
			fmt.Fprintf(w, `{"start_time":"%s","method":"%s","path":"%s","protocol":"HTTP/2","response_code":200,"response_flags":"-",`+
				`"bytes_received":0,"bytes_sent":%d,"duration":%d,"x_forwarded_for":"%s","user_agent":"%s","request_id":"%s",`+
				`"authority":"shop.example","upstream_host":"10.0.2.1:80","downstream_remote_address":"%s:40000","x-tenant-id":"%s"}`+"\n",
				stamp, method, path, size, millis, address, agent, id, address, tenant)
		case accesslog.Common, accesslog.Combined:
			fmt.Fprintf(w, `%s - %s [%s] "%s %s HTTP/1.1" 200 %d`, address, tenant,
				began.Add(time.Duration(i)*apart).Format("02/Jan/2006:15:04:05 -0700"), method, path, size)
			if format == accesslog.Combined {
				fmt.Fprintf(w, ` "https://shop.example/" "%s"`, agent)
			}
			w.WriteByte('\n')
		default:
			fmt.Fprintf(w, `[%s] "%s %s HTTP/2" 200 - 0 %d %d %d "%s" "%s" "%s" "shop.example" "10.0.2.1:80"`+"\n",
				stamp, method, path, size, millis, millis, address, agent, id)
		}
	}
	return w.Flush()
}
