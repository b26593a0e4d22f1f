package vendors

import (
	"embed"
	"errors"
	"io"
	"os"
	"regexp"
)

//go:embed *.yaml
var files embed.FS

var (
	errGone = errors.New("gone")
	pattern = regexp.MustCompile("a+")
	_       io.Reader = os.Stdin
)

var table = map[string]int{"a": 1}

var count, limit int
