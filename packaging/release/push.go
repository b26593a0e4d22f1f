package main

import (
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/registry"
)

// pushChart pushes a packed chart to a repository, below the chart's name, with the credentials of helm and of the
// user's container tools. Its tag is its version.
func pushChart(path, repository string, insecure bool, created time.Time) error {
	c, err := loader.LoadFile(path)
	if err != nil {
		return fmt.Errorf("cannot read the chart: %w", err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("cannot read the chart: %w", err)
	}
	var options []registry.ClientOption
	if insecure {
		if host, _, _ := strings.Cut(repository, "/"); !loopback(host) {
			return fmt.Errorf("cannot push to %q without TLS: the registry is not on a loopback address", repository)
		}
		options = append(options, registry.ClientOptPlainHTTP())
	}
	client, err := registry.NewClient(options...)
	if err != nil {
		return fmt.Errorf("cannot push to %q: %w", repository, err)
	}
	ref := fmt.Sprintf("%s/%s:%s", repository, c.Name(), c.Metadata.Version)
	_, err = client.Push(data, ref, registry.PushOptCreationTime(created.Format(time.RFC3339)))
	if err != nil {
		return fmt.Errorf("cannot push to %q: %w", repository, err)
	}
	return nil
}

func loopback(registry string) bool {
	host, _, err := net.SplitHostPort(registry)
	if err != nil {
		host = registry // without a port
	}
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}
