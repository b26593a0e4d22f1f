package bed

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
)

// ports are the ones that guests know, and that a snapshot therefore remembers: they stay the same from run to run for
// as long as nobody else listens on them.
type ports struct {
	API      int `json:"api"`
	Registry int `json:"registry"`
}

// open reads the ports from a file, and chooses new ones when one of them is taken.
func (p *ports) open(file string) error {
	text, err := os.ReadFile(file)
	if err == nil && json.Unmarshal(text, p) == nil && free(p.API) && free(p.Registry) {
		return nil
	}
	if p.API, err = choose(); err != nil {
		return err
	}
	if p.Registry, err = choose(); err != nil {
		return err
	}
	if text, err = json.Marshal(p); err != nil {
		return fmt.Errorf("cannot encode ports: %w", err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return fmt.Errorf("cannot remember ports: %w", err)
	}
	return nil
}

// choose finds a free port below the range that Linux gives to outgoing connections (32768 and up, ip(7)), so that it
// is likely to be free the next time too.
func choose() (int, error) {
	const first, count, tries = 20000, 10000, 100
	for range tries {
		if port := first + rand.IntN(count); free(port) {
			return port, nil
		}
	}
	return 0, fmt.Errorf("cannot find a free port in %d tries", tries)
}

func free(port int) bool {
	if port == 0 {
		return false
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	l.Close()
	return true
}
