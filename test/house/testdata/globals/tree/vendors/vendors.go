package vendors

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
)

//go:embed *.yaml
var files embed.FS

var (
	errGone = errors.New("gone")
	errLate = fmt.Errorf("not within %d s", 5)
	pattern = regexp.MustCompile("a+")
	_       io.Reader = os.Stdin
)

var table = map[string]int{"a": 1}

var count, limit int
