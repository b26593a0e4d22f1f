package transfer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// redirectLimit is how many redirects one request follows.
const redirectLimit = 5

// Client fetches files by HTTP. It is safe for concurrent use, except that two of the same digest must not be fetched
// into one directory at a time.
type Client struct {
	h     *host.Host
	http  *http.Client
	pause time.Duration
}

// Client returns a client that writes to h and waits pause before the second attempt.
func (t *Transport) Client(h *host.Host, pause time.Duration) *Client {
	return &Client{h: h, http: &http.Client{Transport: t, CheckRedirect: redirect}, pause: pause}
}

// StatusError is an answer of a server that is not what was asked for.
type StatusError struct{ Code int }

func (e *StatusError) Error() string {
	return strings.ToLower(fmt.Sprintf("the server answers %d %s", e.Code, http.StatusText(e.Code)))
}

// ErrTooLong is the error of an answer that is longer than it may be.
var ErrTooLong = errors.New("the answer is longer than it may be")

// errRedirect is the error of a redirect that is not followed.
var errRedirect = errors.New("the server redirects to where this request does not go")

// redirect follows a server to another one only with TLS, so that nobody between here and there chooses the address,
// and no service of the host's network is asked in a stranger's name.
func redirect(r *http.Request, via []*http.Request) error {
	last := via[len(via)-1]
	switch {
	case len(via) > redirectLimit:
		return fmt.Errorf("%w: more than %d times", errRedirect, redirectLimit)
	case r.URL.User != nil:
		return fmt.Errorf("%w: with credentials", errRedirect)
	case r.URL.Scheme == "https" || r.URL.Scheme == last.URL.Scheme && r.URL.Host == last.URL.Host:
		return nil
	}
	return fmt.Errorf("%w: to %q without TLS", errRedirect, r.URL.Host)
}

// ask sends a request for a URL from the byte from on, and returns an answer with status 200 or, if from is not 0, 206.
func (c *Client) ask(ctx context.Context, address string, from int64) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, accel.Problemf(accel.ConfigInvalid, "a URL cannot be one")
	}
	r.Header.Set("User-Agent", "acceld")
	if from > 0 {
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK && (from == 0 || answer.StatusCode != http.StatusPartialContent) {
		_ = answer.Body.Close() // the status is what matters
		return nil, &StatusError{answer.StatusCode}
	}
	return answer, nil
}

// Get returns the body of an answer of at most most bytes, after several attempts if need be. Nothing is known of what
// it should be.
func (c *Client) Get(ctx context.Context, address string, most int64) (body []byte, err error) {
	err = Try(ctx, c.pause, retry, func(int, error) {}, func() error {
		answer, err := c.ask(ctx, address, 0)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		body, err = io.ReadAll(io.LimitReader(answer.Body, most+1))
		if int64(len(body)) > most {
			return ErrTooLong
		}
		return err
	})
	return body, err
}

// retry reports whether another attempt may help.
func retry(err error) bool {
	var p *accel.Problem
	if errors.As(err, &p) || errors.Is(err, ErrTooLong) || errors.Is(err, errRedirect) || errors.Is(err, ErrPlain) {
		return false
	}
	var status *StatusError
	if errors.As(err, &status) {
		return status.Code >= 500 || status.Code == http.StatusTooManyRequests ||
			status.Code == http.StatusRequestTimeout || status.Code == http.StatusRequestedRangeNotSatisfiable
	}
	return Temporary(err)
}

// Explain gives an error of a client its reason: ArtifactNotFound if the server has not got it, RegistryDenied if it
// keeps it to itself, ArtifactInvalid for an endless answer, and RegistryUnreachable for all that another attempt, or
// another server, may cure. It leaves out the URL, which may contain a signature.
func Explain(err error) *accel.Problem {
	var p *accel.Problem
	if errors.As(err, &p) {
		return p
	}
	reason := accel.RegistryUnreachable
	var status *StatusError
	var certificate *tls.CertificateVerificationError
	var failed *url.Error
	var network *net.OpError
	switch {
	case errors.Is(err, ErrTooLong):
		return accel.Problemf(accel.ArtifactInvalid, "%v", ErrTooLong)
	case errors.As(err, &status):
		switch status.Code {
		case http.StatusNotFound, http.StatusGone:
			reason = accel.ArtifactNotFound
		case http.StatusUnauthorized, http.StatusForbidden:
			reason = accel.RegistryDenied
		}
		return accel.Problemf(reason, "%v", status)
	case errors.As(err, &certificate):
		err = certificate
	case errors.As(err, &network):
		err = network
	case errors.As(err, &failed):
		err = failed.Err
	}
	return accel.Problemf(reason, "the server cannot be asked: %v", err)
}
