package memory

import (
	"bytes"
	"errors"
	"sync"
	"time"

	"sluice/controlsvc/store"
	"sluice/shared/instant"
)

var errReplicas = errors.New("too many replicas say something")

// sayings are what replicas say, by domain and replica. Replicas that share a store in memory share a process.
type sayings struct {
	mu   sync.Mutex
	said map[speaker]saying
}

type speaker struct {
	domain  string
	replica uint64
}

type saying struct {
	text  []byte
	until instant.Instant
}

func (s *sayings) exchange(domain string, replica uint64, says []byte, now instant.Instant, ttl time.Duration) ([][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var others [][]byte
	for who, what := range s.said {
		switch {
		case what.until <= now:
			delete(s.said, who)
		case who.domain == domain && who.replica != replica:
			others = append(others, what.text)
		}
	}
	who := speaker{domain, replica}
	if _, is := s.said[who]; !is && len(s.said) >= store.MaxReplicas {
		return nil, errReplicas
	}
	if s.said == nil {
		s.said = make(map[speaker]saying)
	}
	s.said[who] = saying{bytes.Clone(says), now.Add(ttl)}
	return others, nil
}
