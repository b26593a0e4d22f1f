package audit

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSince(t *testing.T) {
	log := filepath.Join(t.TempDir(), "audit.log")
	first := `{"verb":"list","stage":"ResponseComplete","objectRef":{"resource":"nodes"}}
{"verb":"watch","stage":"ResponseStarted","objectRef":{"resource":"nodes"}}
{"verb":"watch","stage":"ResponseComplete","objectRef":{"resource":"nodes"}}
{"verb":"update","stage":"ResponseComplete","objectRef":{"resource":"leases"}}
`
	text := first + `{"verb":"patch","stage":"ResponseComplete","objectRef":{"resource":"nodes","subresource":"status"}}
{"verb":"create","stage":"Resp`
	if err := os.WriteFile(log, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	end := int64(len(text) - len(`{"verb":"create","stage":"Resp`))
	for offset, want := range map[int64]Counts{
		0: {
			ByKind: map[string]int{"list nodes": 1, "watch nodes": 1, "patch nodes/status": 1}, All: 3, Writes: 1, Leases: 1,
			End: end,
		},
		int64(len(first)): {ByKind: map[string]int{"patch nodes/status": 1}, All: 1, Writes: 1, End: end},
	} {
		got, err := Since(log, offset)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("from %d: %v\n%s", offset, err, diff)
		}
	}
}
